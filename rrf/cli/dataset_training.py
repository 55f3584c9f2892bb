"""The part of `rrf train` for policies that learn from datasets by imitation, and for reinforcement
learning that starts from such a policy. Their progress is a live bar or table on a terminal, and
lines in a log.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import typer

from rrf.cli.trainings import Training, require_datasets
from rrf.lineage import Lineage
from rrf.run_directory import TrainingResult

# Paths, which must not change the key of a run: the place of the parent checkpoint, whose content
# is in `parent`, and the place of decoded images.
_PLACES = ("init_from", "cache_dir")


class SupervisedTraining(Training):
    """Imitation learning from recorded episodes."""

    _parts_follow_processes = True  # without num_microbatches

    def check(self) -> None:
        """See `Training.check`."""
        super().check()
        require_datasets(self.cfg.datasets)

    def free(self) -> Collection[str]:
        """See `Training.free`."""
        return _PLACES

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`."""
        from rrf import code_digest, workspace
        from rrf.data.files import content_digest
        from rrf.registry.lineage_sources import local_lineage

        self.cfg.check_parent()
        lineage = local_lineage(*self._datasets(parent))
        versions = [
            dataset.md5 or content_digest(workspace.dataset(dataset.name))
            for dataset in lineage.datasets
        ]
        source = lineage.source_digest or code_digest.source_digest()
        dataset = ", ".join(versions) or None
        inputs = run_inputs(self.cfg.to_dict(), dataset, source, parent_digest)
        processes = os.environ.get("WORLD_SIZE", "1")
        if processes != "1" and self._parts_follow_processes and not self.cfg.num_microbatches:
            inputs["processes"] = processes
        return lineage, inputs

    def shown(self):
        """See `Training.shown`: a live bar on a terminal, plain lines in a log."""
        return _bar(self.cfg)

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`."""
        loss = result.metrics.get("validation/total", result.metrics["loss/total"])
        return f"{result.steps} steps, loss {loss:.4f}"

    def _datasets(self, parent: Path | None) -> Collection[str]:
        return self.cfg.datasets


class VLARLTraining(SupervisedTraining):
    """Reinforcement learning in simulation. It reads no dataset; its lineage is that of the
    datasets from which its policy was trained by imitation."""

    _parts_follow_processes = False

    def check(self) -> None:
        """See `Training.check`."""
        Training.check(self)
        self._check_tasks()
        if not getattr(self.cfg, "ray", None):  # else the simulator may be on other machines
            self.cfg.env.versions([])

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`."""
        if parent is None:  # which task it is comes first, then that its policy is missing
            self._check_tasks()
        return super().depends_on(parent, parent_digest)

    def _check_tasks(self) -> None:
        if not getattr(self.cfg, "ray", None):  # else the simulator may be on other machines
            for task in self.cfg.tasks:
                self.cfg.env.check_task(task)

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """See `Training.processes`; this training has worker processes of its own instead."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "reinforcement learning of policies that see images does not use torchrun; start "
                "it with plain `rrf train`, and set num_workers for more processes"
            )
        yield

    def shown(self):
        """See `shown`."""
        return shown(self.cfg)

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`."""
        validations = result.validations or []
        first, best = validations[0], max(validations, key=lambda entry: entry["success"])
        return (
            f"{result.steps} rounds, validation success {first['success']:.1%} before, "
            f"{best['success']:.1%} after round {best['round']}"
        )

    def _datasets(self, parent: Path | None) -> Collection[str]:
        from rrf.runners.checkpoints.deployable import load_lineage

        return load_lineage(parent).dataset_names


def run_inputs(config: dict, dataset: str | None, source: str, parent: str | None) -> dict:
    """Digests of everything that decides a run's result."""
    from rrf import atomic

    digest = atomic.digest_of({k: value for k, value in config.items() if k not in _PLACES})
    return {"config": digest, "dataset": dataset, "source": source, "parent": parent}


@contextlib.contextmanager
def _bar(cfg) -> Iterator:
    """Yield a callback that shows progress: a live bar on a terminal, plain lines in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Eta

    console = Console()
    if not console.is_interactive:
        yield lambda progress: typer.echo(_line(progress))
        return
    name, numbers = TextColumn("[bold]{task.description}"), TextColumn("{task.fields[numbers]}")
    with Progress(name, BarColumn(), MofNCompleteColumn(), Eta(), numbers, console=console) as bar:
        task = bar.add_task(cfg.experiment_name, total=cfg.max_steps, numbers="")
        yield lambda progress: bar.update(task, completed=progress.step, numbers=_numbers(progress))


def _line(progress) -> str:
    minutes, seconds = divmod(round(progress.eta_s), 60)
    eta = f"{minutes}:{seconds:02d}"
    return f"step {progress.step}/{progress.max_steps} {_numbers(progress)} eta {eta}"


def _numbers(progress) -> str:
    validation = "-" if progress.validation_loss is None else f"{progress.validation_loss:.4f}"
    return (
        f"loss {progress.loss:.4f} val {validation} lr {progress.learning_rate:.1e} "
        f"{progress.samples_per_s:.0f} samples/s"
    )


_SHOWN_ROUNDS = 12
_METRICS = {  # what one kind of algorithm measures and another does not: metric and format
    "kl": ("actor/approx_kl", ".4f"),
    "clipped": ("actor/pg_clipfrac", ".0%"),
    "value": ("value/mean", ".3f"),
    "entropy": ("policy/entropy", ".2f"),
}


@contextlib.contextmanager
def shown(cfg) -> Iterator[Callable]:
    """Yield a callback that takes a `rrf.runners.vla_rl.roles.RoundProgress` and shows it."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_interactive:
        yield lambda progress: typer.echo(line(progress))
        return
    history: list = []
    with Live(console=console, refresh_per_second=4) as live:

        def show(progress) -> None:
            history.append(progress)
            live.update(_table(cfg, history))

        yield show


def line(progress) -> str:
    """One round as a line of text."""
    success = progress.metrics["env/success_once"]
    validation = "" if progress.validation is None else f"validation {progress.validation:.1%} "
    skipped = "" if progress.metrics.get("rollout/groups_kept", 1) else "no contrast, skipped "
    return (
        f"round {progress.round}/{progress.max_rounds} {progress.episodes} episodes "
        f"success {success:.1%} {validation}{skipped}"
        + "".join(
            f"{name} {_metric(progress, name)} "
            for name in ("kl", "value", "entropy")
            if _metric(progress, name)
        )
        + f"{progress.episodes_per_s:.1f} episodes/s eta {_clock(progress.eta_s)}"
    )


def _table(cfg, history: list):
    from rich.table import Table

    newest = history[-1]
    title = (
        f"{cfg.experiment_name}: round {newest.round}/{newest.max_rounds}, {newest.episodes} "
        f"episodes, {newest.episodes_per_s:.1f}/s, eta {_clock(newest.eta_s)}"
    )
    table = Table(title=title, title_justify="left")
    names = [task.removesuffix("-v3") for task in cfg.tasks]
    shown_metrics = [name for name in _METRICS if _metric(newest, name)]
    for name in ("round", *names, "all", "validation", *shown_metrics, "length"):
        table.add_column(name, justify="right")
    for progress in history[-_SHOWN_ROUNDS:]:
        rates = [f"{progress.success[t]:.0%}" if t in progress.success else "" for t in cfg.tasks]
        metrics = progress.metrics
        table.add_row(
            str(progress.round),
            *rates,
            f"{metrics['env/success_once']:.0%}",
            "" if progress.validation is None else f"{progress.validation:.1%}",
            *(_metric(progress, name) for name in shown_metrics),
            f"{metrics['env/episode_len']:.1f}",
        )
    return table


def _metric(progress, name: str) -> str:
    """A metric of `_OWN` as text; empty if the algorithm does not measure it (yet)."""
    metric, form = _METRICS[name]
    return format(progress.metrics[metric], form) if metric in progress.metrics else ""


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"
