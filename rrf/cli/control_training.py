"""The part of `rrf train` for state-based control: the choice of the config, the inputs of the run,
the video, and the processes of torchrun.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.cli import control_display
from rrf.cli.trainings import Training

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.control.configs import ControlRunnerCfg
    from rrf.runners.control.loop import ControlRunner
    from rrf.runners.tracker import Tracker


def config_of(target: str | None, overrides: Sequence[str], task: str | None) -> "RunnerCfg":
    """The config of a preset or a training file, or the config that a task was registered with.

    Raises:
        ValueError: If both `target` and `task` are given, or neither, and for the reasons given in
            `rrf.presets.resolve`.
    """
    from rrf.config import parse_overrides
    from rrf.presets import PRESETS, resolve

    if task is None:
        if target is None:
            raise ValueError(
                f"name a preset, a training file or a --task; presets: {', '.join(PRESETS)}"
            )
        return resolve(target, overrides)
    if target is not None and "=" not in target:
        raise ValueError(f"--task {task} already names what to train; drop '{target}'")
    words = [target, *overrides] if target else overrides
    return registered_cfg(task).override(parse_overrides(words))


def registered_cfg(task: str) -> "ControlRunnerCfg":
    """The config that a task was registered with, with `env` set to that task.

    Raises:
        ValueError: For an unknown task, a task without a config, or a config for another task.
    """
    from rrf.envs.configs import task_id
    from rrf.envs.gymnasium.configs import RegisteredEnvCfg
    from rrf.envs.gymnasium.registered import required_runner_cfg
    from rrf.runners.control.configs import ControlRunnerCfg

    cfg = required_runner_cfg(task)
    if not isinstance(cfg, ControlRunnerCfg):
        raise ValueError(
            f"{task} is registered with a {type(cfg).__name__}; expected a runner config such as "
            "rrf.runners.OnPolicyRunnerCfg()"
        )
    if cfg.env == ControlRunnerCfg().env:  # still the default: the config names no environment
        return cfg.replace(env=RegisteredEnvCfg(task=task))
    if task_id(cfg.env.task) != task_id(task):
        raise ValueError(
            f"the config registered with {task} trains in env.task={cfg.env.task}; leave out its "
            f"env, or set env=RegisteredEnvCfg(task='{task}')"
        )
    return cfg.replace(env=cfg.env.replace(task=task))


def is_first_process() -> bool:
    """Whether this process is the one that writes files and messages, among those of torchrun."""
    return os.environ.get("RANK", "0") == "0"


class ControlTraining(Training):
    """Reinforcement learning of a state-based policy."""

    can_film = True

    def free(self) -> Collection[str]:
        """See `Training.free`."""
        from rrf.runners.control.loop import FREE

        return FREE

    def stands_on(self, parent: Path | None, parent_digest: str | None) -> tuple[dict, dict]:
        """See `Training.stands_on`. This training uses no dataset."""
        from rrf import atomic
        from rrf.envs.gymnasium.task_source import joined
        from rrf.tracking.lineage import environment_lineage

        config = self.cfg.to_dict()
        lineage = environment_lineage(config["env"])
        decides = {k: v for k, v in self.cfg.identity().items() if k not in self.free()}
        inputs = {
            "config": atomic.digest_of(decides),
            "simulators": atomic.digest_of(lineage["environment"]["packages"]),
            "source": joined(lineage["source_digest"], config["env"]["task"]),
            "parent": parent_digest,
            "processes": os.environ.get("WORLD_SIZE", "1"),
        }
        return lineage, inputs

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """See `Training.processes`: the processes that torchrun started, if any."""
        from rrf.runners.control import process_group

        process_group.join(self.cfg.device)
        yield
        process_group.leave()

    def shown(self):
        """See `rrf.cli.control_display`."""
        return control_display.shown(self.cfg)

    def film(self, runner: "ControlRunner", tracker: "Tracker") -> Path | None:
        """See `Training.film`."""
        path = runner.run_dir / "videos" / f"iteration_{runner.iteration}.mp4"
        return path if path.is_file() else runner.film(tracker)

    def film_finished(self, result: dict, run_dir: Path) -> Path | None:
        """See `Training.film_finished`."""
        from rrf.runners.checkpoints.control import load_module
        from rrf.runners.control.video import film

        path = run_dir / "videos" / f"iteration_{result['steps']}.mp4"
        if path.is_file():
            return path
        try:
            return film(self.cfg.env, load_module(result["checkpoint"]), path, seed=self.cfg.seed)
        except (ValueError, OSError) as error:
            typer.echo(f"warning: no video: {error}", err=True)
            return None

    def outcome(self, result: dict) -> str:
        """See `Training.outcome`."""
        metrics = result["metrics"]
        earned = (
            f"return {metrics['rollout/return']:.4g} over {metrics['rollout/length']:.0f} steps"
            if "rollout/return" in metrics
            else "no episode has ended"
        )
        rate = result["num_steps"] / max(result["wall_s"], 1e-9)
        return (
            f"{earned} after {result['steps']} iterations, {result['num_steps']} steps, "
            f"{rate:.0f} steps/s"
        )
