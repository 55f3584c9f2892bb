"""The part of `rrf train` that is for state-based control alone: which config, what its run stands
on, its video, and the processes of torchrun.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.control_configs import ControlRunnerCfg
    from rrf.runners.control_loop import ControlRunner
    from rrf.runners.tracker import Tracker


def import_modules(names: Sequence[str]) -> None:
    """Import modules that register tasks, from here or installed, and accept their configs.

    Raises:
        ValueError: For a module that is not there.
    """
    from rrf.config import trust
    from rrf.registry import load_plugins

    load_plugins()
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.append(here)
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
            raise ValueError(
                f"--import: no module '{name}' here ({here}) or among the installed packages"
            ) from error
        trust(name)


def config_of(target: str | None, overrides: Sequence[str], task: str | None) -> "RunnerCfg":
    """The config of a preset or training file, or the one that a task was registered with.

    Raises:
        ValueError: For neither or both, and as `rrf.presets.resolve` does.
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
    """The config that a task was registered with, its env that task.

    Raises:
        ValueError: For an unknown task, one without a config, or one of another task.
    """
    from rrf.envs.control_configs import RegisteredEnvCfg, task_id
    from rrf.envs.registered_env import required_runner_cfg
    from rrf.runners.control_configs import ControlRunnerCfg

    cfg = required_runner_cfg(task)
    if not isinstance(cfg, ControlRunnerCfg):
        raise ValueError(
            f"{task} is registered with a {type(cfg).__name__}; expected a runner config such as "
            "rrf.runners.OnPolicyRunnerCfg()"
        )
    if cfg.env == ControlRunnerCfg().env:  # left as it is
        return cfg.replace(env=RegisteredEnvCfg(task=task))
    if task_id(cfg.env.task) != task_id(task):
        raise ValueError(
            f"the config registered with {task} trains in env.task={cfg.env.task}; leave its env "
            f"out, or set env=RegisteredEnvCfg(task='{task}')"
        )
    return cfg.replace(env=cfg.env.replace(task=task))


def is_control(cfg: "RunnerCfg") -> bool:
    """Whether `cfg` trains a state-based policy."""
    from rrf.runners.control_configs import ControlRunnerCfg

    return isinstance(cfg, ControlRunnerCfg)


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks; see torchrun."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def processes_of(cfg: "ControlRunnerCfg") -> Iterator[None]:
    """Within the block the processes that torchrun started, if it did, form a group."""
    from rrf.runners import process_group

    process_group.join(cfg.device)
    yield
    process_group.leave()


def stands_on(cfg: "ControlRunnerCfg", parent_digest: str | None) -> tuple[dict, dict]:
    """The lineage of a run, and digests of everything that decides its result."""
    from rrf import atomic
    from rrf.runners.control_loop import FREE
    from rrf.tracking.lineage import environment_lineage

    config = cfg.to_dict()
    lineage = environment_lineage(config["env"])
    inputs = {
        "config": atomic.digest_of({k: v for k, v in config.items() if k not in FREE}),
        "simulators": atomic.digest_of(lineage["environment"]["packages"]),
        "source": with_task_source(lineage["source_digest"], config["env"]["task"]),
        "parent": parent_digest,
        "processes": os.environ.get("WORLD_SIZE", "1"),
    }
    return lineage, inputs


def with_task_source(source: str, task: str) -> str:
    """`source`, the digest of this package's code, joined by what a registered task is made of."""
    from rrf import atomic
    from rrf.envs.task_source import source_of

    made_of = source_of(task)
    return atomic.digest_of([source, made_of]) if made_of else source


def film(runner: "ControlRunner", tracker: "Tracker") -> Path | None:
    """The video of a policy that has just been trained; None where nothing can be drawn."""
    path = runner.run_dir / "videos" / f"iteration_{runner.iteration}.mp4"
    return path if path.is_file() else runner.film(tracker)


def film_finished(cfg: "ControlRunnerCfg", result: dict, run_dir: Path) -> Path | None:
    """The video of a finished run, made now if it was not; None where nothing can be drawn."""
    from rrf.runners.control_checkpoint import load_module
    from rrf.runners.control_video import film

    path = run_dir / "videos" / f"iteration_{result['steps']}.mp4"
    if path.is_file():
        return path
    try:
        return film(cfg.env, load_module(result["checkpoint"]), path, seed=cfg.seed)
    except (ValueError, OSError) as error:
        typer.echo(f"warning: no video: {error}", err=True)
        return None


def outcome(result: dict) -> str:
    """A finished run in a few words."""
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
