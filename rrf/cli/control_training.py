"""The part of `rrf train` for state-based control: the inputs of the run, the video, the processes
of torchrun, and the progress: a live table on a terminal, lines in a log.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.cli.trainings import Training, require_datasets
from rrf.lineage import Lineage
from rrf.run_directory import TrainingResult

if TYPE_CHECKING:
    from rrf.runners.control.loop import ControlRunner
    from rrf.runners.tracker import Tracker


class ControlTraining(Training):
    """Reinforcement learning of a state-based policy."""

    can_film = True

    def free(self) -> Collection[str]:
        """See `Training.free`."""
        from rrf.runners.control.configs import FREE

        return FREE

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`. This training uses no dataset."""
        from rrf import atomic
        from rrf.envs.gymnasium.task_source import joined
        from rrf.registry.lineage_sources import environment_lineage

        config = self.cfg.to_dict()
        env = self.cfg.env
        lineage = environment_lineage(config["env"], env.versions(env.packages))
        assert lineage.environment is not None
        decides = {k: v for k, v in config.items() if k not in self.free()}
        inputs = {
            "config": atomic.digest_of(decides),
            "simulators": atomic.digest_of(lineage.environment.packages),
            "source": joined(lineage.source_digest or "", config["env"]["task"]),
            "parent": parent_digest,
            "processes": os.environ.get("WORLD_SIZE", "1"),
        }
        return lineage, inputs

    def shown(self):
        """See `rrf.cli.control_training`."""
        return shown(self.cfg)

    def film(self, runner: "ControlRunner", tracker: "Tracker") -> Path | None:
        """See `Training.film`."""
        from rrf.runners.control.video import film_run

        path = runner.run_dir / "videos" / f"iteration_{runner.iteration}.mp4"
        return path if path.is_file() else film_run(runner, tracker)

    def film_finished(self, result: TrainingResult, run_dir: Path) -> Path | None:
        """See `Training.film_finished`."""
        from rrf.runners.checkpoints.control import load_module
        from rrf.runners.control.video import film

        path = run_dir / "videos" / f"iteration_{result.steps}.mp4"
        if path.is_file():
            return path
        try:
            return film(self.cfg.env, load_module(result.checkpoint), path, seed=self.cfg.seed)
        except (ValueError, OSError) as error:
            typer.echo(f"warning: no video: {error}", err=True)
            return None

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`."""
        metrics = result.metrics
        earned = (
            f"return {metrics['rollout/return']:.4g} over {metrics['rollout/length']:.0f} steps"
            if "rollout/return" in metrics
            else "no episode has ended"
        )
        num_steps = result.num_steps or 0
        rate = num_steps / max(result.wall_s, 1e-9)
        return f"{earned} after {result.steps} iterations, {num_steps} steps, {rate:.0f} steps/s"


class ImitationTraining(ControlTraining):
    """Reinforcement learning that also reads a dataset of states."""

    def check(self) -> None:
        """See `Training.check`."""
        super().check()
        require_datasets([self.cfg.dataset])

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`. This training uses a dataset and an environment."""
        from rrf import workspace
        from rrf.data.files import content_digest
        from rrf.registry.lineage_sources import local_lineage

        self.cfg.require_dataset()
        of_env, inputs = super().depends_on(parent, parent_digest)
        lineage = local_lineage(self.cfg.dataset)
        version = lineage.datasets[0].md5 or content_digest(workspace.dataset(self.cfg.dataset))
        return lineage.replace(environment=of_env.environment), inputs | {"dataset": version}


class OfflineTraining(ImitationTraining):
    """Learning from a dataset of states."""

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`."""
        metrics = result.metrics
        loss = ", ".join(f"{k} {v:.4g}" for k, v in metrics.items() if k.startswith("loss/"))
        learned = f"{metrics['train/num_updates']:.0f} gradient steps, {loss}"
        return f"{learned}, {super().outcome(result)}" if result.num_steps else learned


class DynamicsTraining(OfflineTraining):
    """Learning a model of a task's dynamics from a dataset of states."""

    can_film = False

    def outcome(self, result: TrainingResult) -> str:
        """See `Training.outcome`: the errors in open loop, and those of persistence."""
        metrics = result.metrics
        errors = ", ".join(
            f"{horizon}: {metrics[f'open_loop/rmse_{horizon}']:.2%} "
            f"({metrics[f'open_loop/persistence_{horizon}']:.2%})"
            for horizon in self.cfg.horizons
        )
        return (
            f"{metrics['train/num_updates']:.0f} gradient steps; error in open loop, in standard "
            f"deviations (of persistence): {errors}"
        )


class DistillationTraining(ControlTraining):
    """A student learns from a teacher."""

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`. This training uses a teacher and an environment."""
        from rrf.runners.checkpoints import checkpoint
        from rrf.runners.checkpoints.deployable import deployable_digest

        self.cfg.require_teacher()
        lineage, inputs = super().depends_on(parent, parent_digest)
        if self.cfg.is_scripted:
            return lineage, inputs
        digest = deployable_digest(checkpoint.find(self.cfg.teacher))
        return lineage.replace(teacher_checkpoint=digest), inputs | {"teacher": digest}


_SHOWN_ROUNDS = 12
_COLUMNS = {  # a column is shown if the run has its metric
    "return": ("rollout/return", "{:.4g}"),
    "length": ("rollout/length", "{:.0f}"),
    "solved": ("rollout/success_once", "{:.0%}"),
    "at end": ("rollout/success_at_end", "{:.0%}"),
    "steps/s": ("perf/steps_per_s", "{:.0f}"),
    "updates": ("train/num_updates", "{:.0f}"),
    "kl": ("policy/kl", "{:.4f}"),
    "lr": ("train/learning_rate", "{:.1e}"),
    "std": ("policy/std", "{:.3f}"),
    "alpha": ("policy/alpha", "{:.3g}"),
    "value loss": ("loss/value", "{:.3g}"),
    "critic loss": ("loss/critic", "{:.3g}"),
    "style": ("amp/style_reward", "{:.3f}"),
}


@contextlib.contextmanager
def shown(cfg) -> Iterator[Callable]:
    """Yield a callback that takes a `rrf.runners.control.loop.ControlProgress` and shows it.

    Warnings are printed as single lines meanwhile.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with warnings.catch_warnings():
        if not console.is_interactive:
            warnings.showwarning = _warning_line
            yield lambda progress: typer.echo(line(progress))
            return
        history: list = []
        with Live(console=console, refresh_per_second=4) as live:
            warnings.showwarning = lambda message, *_, **__: live.console.print(
                f"warning: {message}", style="yellow", markup=False
            )

            def show(progress) -> None:
                history.append(progress)
                live.update(_table(cfg.experiment_name, history[-_SHOWN_ROUNDS:]))

            yield show


def line(progress) -> str:
    """One iteration as a line of text."""
    return (
        f"iteration {progress.iteration}/{progress.max_iterations} {progress.num_steps} steps "
        f"{numbers(progress.metrics)} eta {_clock(progress.eta_s)}"
    )


def numbers(metrics: Mapping[str, float]) -> str:
    """The shown metrics as text, e.g. "return 12.5 length 200"."""
    return " ".join(f"{name} {text}" for name, text in _cells(metrics).items())


def _warning_line(message, *_, **__) -> None:
    typer.echo(f"warning: {message}", err=True)


def _table(name: str, history: list):
    from rich.table import Table

    newest = history[-1]
    table = Table(
        title=f"{name}: iteration {newest.iteration}/{newest.max_iterations}, "
        f"{newest.num_steps} steps, eta {_clock(newest.eta_s)}",
        title_justify="left",
    )
    columns = list(_cells(newest.metrics))
    for column in ("iteration", *columns):
        table.add_column(column, justify="right")
    for progress in history:
        cells = _cells(progress.metrics)
        table.add_row(str(progress.iteration), *(cells.get(column, "") for column in columns))
    return table


def _cells(metrics: Mapping[str, float]) -> dict[str, str]:
    return {
        column: form.format(metrics[name])
        for column, (name, form) in _COLUMNS.items()
        if name in metrics
    }


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
