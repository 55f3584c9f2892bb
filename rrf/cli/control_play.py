"""`rrf play` of a state-based policy: numbers, a video, or MuJoCo's window."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rrf.envs.control_configs import ControlEnvCfg
    from rrf.envs.control_env import ControlEnv
    from rrf.envs.passive_viewer import PassiveViewer

_SECONDS = 20.0
_MAX_FILMED, _MAX_FPS = 9, 25


def play(
    path: Path,
    label: str,
    num_envs: int,
    steps: int | None,
    seconds: float | None,
    video: Path | None,
    viewer: bool,
    seed: int,
) -> None:
    """Play the policy of a checkpoint greedily, in its own environment.

    Args:
        path: The checkpoint.
        label: What to call it.
        num_envs: Environments side by side; a video shows at most nine.
        steps: Of every environment; None goes by `seconds` of simulated time.
        seconds: Twenty if neither is given.
        video: The file to write.
        viewer: Show the first environment in a window, until it is closed or the time is over.

    Raises:
        ValueError: For options that exclude each other, a display that is not there, or an
            environment that cannot be drawn.
    """
    from rrf.envs.control_rendering import record
    from rrf.envs.passive_viewer import require_display
    from rrf.runners.control_checkpoint import load_control_policy
    from rrf.runners.control_play import WatchedEnv
    from rrf.runners.control_play import play as run

    if steps is not None and seconds is not None:
        raise ValueError("--steps and --seconds say the same; give one")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"--seconds is {seconds:g}, allowed: more than 0")
    if viewer and video:
        raise ValueError("--viewer and --video cannot go together; give one")
    if viewer:
        require_display()
    policy, interface = load_control_policy(path)
    num_steps = steps or max(1, round((seconds or _SECONDS) / interface.step_dt))
    with _environment(environment_cfg(path), 1 if viewer else num_envs, seed) as bare:
        require_same_shapes(bare.interface, interface, label)
        env: Any = WatchedEnv(bare)
        if video:
            fps = max(1, min(_MAX_FPS, round(1 / interface.step_dt)))
            record(env, policy, num_steps, range(min(num_envs, _MAX_FILMED)), video, fps)
        else:
            with _window(env) if viewer else contextlib.nullcontext() as window:
                run(env, policy, num_steps, window)
        typer.echo(f"{label}: {env.summary()}")
        if video:
            typer.echo(f"video {video}")


def environment_cfg(path: Path) -> "ControlEnvCfg":
    """The environment that a checkpoint was trained in.

    Raises:
        ValueError: If its config cannot be read here.
    """
    from rrf.config import first_error
    from rrf.envs.control_configs import ControlEnvCfg
    from rrf.runners import checkpoint

    try:
        return ControlEnvCfg.from_dict(checkpoint.load_config(path)["env"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}/{checkpoint.CONFIG} describes no environment known here "
            f"({first_error(error)}); a plugin's is known after --import MODULE"
        ) from error


def require_same_shapes(found, expected, label: str) -> None:
    """Raise ValueError if an environment's interface is another than the policy was made for."""
    for name in ("observation_dims", "num_actions", "num_choices"):
        mine, theirs = getattr(expected, name), getattr(found, name)
        if mine != theirs:
            raise ValueError(
                f"{label} was trained with {name} {mine}, {found.task} now has {theirs}"
            )


@contextlib.contextmanager
def _environment(cfg: "ControlEnvCfg", num_envs: int, seed: int) -> "Iterator[ControlEnv]":
    from rrf.envs.control_configs import MjlabEnvCfg

    changes: dict[str, Any] = {"num_envs": num_envs}
    if isinstance(cfg, MjlabEnvCfg):  # mjlab's own backend can be drawn by its own viewers only
        changes |= {"backend": "native", "physics": "exact"}
    env = cfg.replace(**changes).build(seed=seed, device="cpu")
    try:
        yield env
    finally:
        env.close()


@contextlib.contextmanager
def _window(env: "ControlEnv") -> "Iterator[PassiveViewer]":
    from rrf.envs.passive_viewer import PassiveViewer

    window = PassiveViewer(env)
    try:
        yield window
    finally:
        window.close()
