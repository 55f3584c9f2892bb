"""The config that `rrf train` and `rrf show` use: of a preset, of a training file, or of a task.

A task uses the config that it was registered with, or else the preset that was made for it, or else
the defaults for its kind. Nothing here imports torch, so that a mistake is told at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rrf.cli.options import is_first_process

if TYPE_CHECKING:
    from rrf.presets.any_task import Choice
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.control.configs import ControlRunnerCfg


def config_of(
    target: str | None,
    overrides: Sequence[str],
    task: str | None = None,
    algorithm: str | None = None,
) -> "RunnerCfg":
    """The config of `target` (a preset or a training file) or of `task`, with overrides.

    For a task it prints which settings were chosen, and how to change them.

    Raises:
        ValueError: If both `target` and `task` are given, or neither; for an unknown task or
            algorithm; and for the reasons given in `rrf.presets.resolve`.
    """
    from rrf.config import parse_overrides
    from rrf.envs.configs import trust_task
    from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
    from rrf.presets import known_presets, resolve

    if task is None:
        if algorithm is not None:
            raise ValueError(
                f"--algorithm {algorithm} needs a --task; a preset has its own algorithm"
            )
        if target is None:
            raise ValueError(
                f"name a preset, a training file or a --task; presets: {known_presets()}"
            )
        cfg = resolve(target, overrides)
        _require_task(cfg)
        return cfg
    if target is not None and "=" not in target:
        raise ValueError(f"--task {task} already names what to train; drop '{target}'")
    trust_task(GymnasiumEnvCfg(task=task))  # the user has named its module
    choice = _choice(task, algorithm)
    chosen = choice.cfg.override(parse_overrides([target, *overrides] if target else overrides))
    if is_first_process():
        typer.echo(_chosen_settings(task, algorithm, choice.origin, chosen), err=True)
    return chosen


def registered_cfg(task: str) -> "ControlRunnerCfg | None":
    """The config that a task was registered with, with `env` set to that task; None if it has none.

    Raises:
        ValueError: For an unknown task, or a config for another task.
    """
    from rrf.envs.configs import task_id
    from rrf.envs.gymnasium.configs import RegisteredEnvCfg
    from rrf.envs.gymnasium.registered import runner_cfg_of
    from rrf.runners.control.configs import ControlRunnerCfg

    cfg = runner_cfg_of(task)
    if cfg is None:
        return None
    if not isinstance(cfg, ControlRunnerCfg):
        raise ValueError(
            f"{task} is registered with a {type(cfg).__name__}; expected a runner config such as "
            "rrf.runners.OnPolicyRunnerCfg()"
        )
    rrf_class = next(kind for kind in type(cfg).__mro__ if kind.__module__.startswith("rrf."))
    if cfg.env == rrf_class().env:  # still the default: the config names no environment
        return cfg.replace(env=RegisteredEnvCfg(task=task))
    if task_id(cfg.env.task) != task_id(task):
        raise ValueError(
            f"the config registered with {task} trains in env.task={cfg.env.task}; leave out its "
            f"env, or set env=RegisteredEnvCfg(task='{task}')"
        )
    return cfg.replace(env=cfg.env.replace(task=task))


def _choice(task: str, algorithm: str | None) -> "Choice":
    from rrf.envs.gymnasium.registered import is_of_mjlab, kind_of
    from rrf.envs.isaaclab.tasks import is_of_isaaclab
    from rrf.presets.any_task import (
        ALGORITHMS,
        Choice,
        algorithm_called,
        defaults_for,
        preset_for,
    )

    asked = algorithm_called(algorithm or "ppo")
    is_elsewhere = is_of_mjlab(task) or is_of_isaaclab(task)
    cfg = None if is_elsewhere else registered_cfg(task)
    if cfg is not None and (
        algorithm is None or isinstance(getattr(cfg, "algorithm", None), ALGORITHMS[asked])
    ):
        return Choice(cfg, "the config that it is registered with")
    return preset_for(task, asked) or defaults_for(task, kind_of(task), asked)


def _require_task(cfg: "RunnerCfg") -> None:
    """Raise ValueError if a config names a task of Gymnasium that does not exist."""
    from rrf.envs.gymnasium.configs import GymnasiumEnvCfg, RegisteredEnvCfg
    from rrf.runners.control.configs import ControlRunnerCfg

    if isinstance(cfg, ControlRunnerCfg) and isinstance(
        cfg.env, GymnasiumEnvCfg | RegisteredEnvCfg
    ):
        from rrf.envs.gymnasium.registry import find_spec

        find_spec(cfg.env.task)


def _chosen_settings(task: str, algorithm: str | None, origin: str, cfg: "ControlRunnerCfg") -> str:
    words = f"--task {task}" + (f" --algorithm {algorithm}" if algorithm else "")
    return (
        f"{task} trains with {origin}. `rrf show {words}` prints every setting; any of them can "
        f"be changed, e.g. `rrf train {words} max_iterations={cfg.max_iterations // 2 or 1}`"
    )
