"""The part of `rrf train` for DAgger: its display, and what a run depends on."""

import contextlib
import os
from collections.abc import Callable, Iterator

import typer

from rrf.cli.dataset_training import SupervisedTraining
from rrf.run_directory import TrainingResult

_MARKS = 5  # lines per stage in a log


class DAggerTraining(SupervisedTraining):
    """Imitation of an expert in the states that the policy visits."""

    _parts_follow_processes = False

    def check(self) -> None:
        """See `Training.check`."""
        self.cfg.env.versions([])
        super().check()

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """See `Training.processes`; this training has worker processes of its own instead."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "DAgger does not use torchrun; start it with plain `rrf train`, and set "
                "num_workers for more processes"
            )
        yield

    def shown(self):
        """See `Training.shown`: a live bar on a terminal, plain lines in a log."""
        return _shown(self.cfg)

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`."""
        validations = result.validations or []
        first = validations[0]
        best = max(validations, key=lambda entry: (entry["success"], entry["round"]))
        episodes = sum(facts["episodes"] for facts in result.recorded or [])
        return (
            f"{result.steps} rounds, {episodes} recorded episodes, validation success "
            f"{first['success']:.1%} before, {best['success']:.1%} after round {best['round']}"
        )


@contextlib.contextmanager
def _shown(cfg) -> Iterator[Callable]:
    """Yield a callback that takes a `rrf.runners.dagger.runner.DAggerProgress` and shows it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console()
    if not console.is_interactive:
        yield _print_sometimes
        return
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console) as bar:
        bars = {}  # one per stage

        def show(at) -> None:
            name = f"{cfg.experiment_name} {_stage(at)}"
            if name not in bars:
                bars[name] = bar.add_task(name, numbers="")
            bar.update(bars[name], completed=at.done, total=at.total, numbers=_numbers(at))

        yield show


def _print_sometimes(at) -> None:
    """Print a few lines per stage."""
    interval = max(1, at.total // _MARKS)
    if at.done == at.total or (at.done and at.done % interval == 0):
        typer.echo(f"{_stage(at)} {at.done}/{at.total} {_numbers(at)}")


def _stage(at) -> str:
    return f"round {at.round}/{at.max_rounds} {at.stage}"


def _numbers(at) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in at.numbers.items())
