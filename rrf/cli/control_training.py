"""The part of `rrf train` for state-based control: the inputs of the run, the video, and the
processes of torchrun.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.cli import control_display
from rrf.cli.trainings import Training
from rrf.lineage import Lineage
from rrf.runners.run_directory import TrainingResult

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
        lineage = environment_lineage(config["env"])
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
        """See `rrf.cli.control_display`."""
        return control_display.shown(self.cfg)

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
