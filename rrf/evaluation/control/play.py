"""Show a state-based policy at work: as numbers, as a video, or in MuJoCo's window."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rrf.config import first_error
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import ControlEnv
from rrf.envs.rendering.film import record
from rrf.envs.rendering.viewer import PassiveViewer, require_display
from rrf.evaluation.candidate import Candidate
from rrf.runners.checkpoints.checkpoint import CONFIG
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.control.play import WatchedEnv
from rrf.runners.control.play import play as run

_SECONDS = 20.0
_MAX_FILMED, _MAX_FPS = 9, 25


def play(
    candidate: Candidate,
    video: Path | None,
    seed: int,
    num_envs: int,
    viewer: bool,
    steps: int | None,
    seconds: float | None,
    say: Callable[[str], None],
) -> None:
    """Play a policy greedily, in the environment it was trained in.

    Args:
        candidate: The policy.
        video: The file to write.
        seed: Seed of the environments.
        num_envs: Environments side by side; a video shows at most nine.
        viewer: Show the first environment in a window, until the window is closed or the time is
            over.
        steps: Steps of every environment; None to use `seconds`.
        seconds: Simulated seconds; 20 if neither `steps` nor `seconds` is given.
        say: Called with each line of text for the user.

    Raises:
        ValueError: For options that exclude each other, a missing display, or an environment that
            cannot be drawn.
    """
    if steps is not None and seconds is not None:
        raise ValueError("--steps and --seconds both set the length; give only one of them")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"--seconds is {seconds:g}, allowed: more than 0")
    if viewer and video:
        raise ValueError("--viewer and --video exclude each other; give only one of them")
    if viewer:
        require_display()
    policy, interface = load_control_policy(candidate.checkpoint)
    num_steps = steps or max(1, round((seconds or _SECONDS) / interface.step_dt))
    with _environment(_environment_cfg(candidate), 1 if viewer else num_envs, seed) as bare:
        _require_same_shapes(bare.interface, interface, candidate.label)
        env: Any = WatchedEnv(bare)
        if video:
            fps = max(1, min(_MAX_FPS, round(1 / interface.step_dt)))
            record(env, policy, num_steps, range(min(num_envs, _MAX_FILMED)), video, fps)
        else:
            with _window(env) if viewer else contextlib.nullcontext() as window:
                run(env, policy, num_steps, window)
        say(f"{candidate.label}: {env.summary()}")
        if video:
            say(f"video {video}")


def _environment_cfg(candidate: Candidate) -> ControlEnvCfg:
    """The environment that a policy was trained in.

    Raises:
        ValueError: If its config cannot be read here.
    """
    try:
        return ControlEnvCfg.from_dict(candidate.config["env"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{candidate.checkpoint}/{CONFIG} describes an environment that is not known here "
            f"({first_error(error)}); import the module that registers it with --import MODULE"
        ) from error


def _require_same_shapes(found, expected, label: str) -> None:
    """Raise ValueError if an environment's interface differs from the one used in training."""
    for name in ("observation_dims", "num_actions", "num_choices"):
        mine, theirs = getattr(expected, name), getattr(found, name)
        if mine != theirs:
            raise ValueError(
                f"{label} was trained with {name} {mine}, but {found.task} now has {theirs}"
            )


@contextlib.contextmanager
def _environment(cfg: ControlEnvCfg, num_envs: int, seed: int) -> Iterator[ControlEnv]:
    env = cfg.drawable().replace(num_envs=num_envs).build(seed=seed, device="cpu")
    try:
        yield env
    finally:
        env.close()


@contextlib.contextmanager
def _window(env: ControlEnv) -> Iterator[PassiveViewer]:
    window = PassiveViewer(env)
    try:
        yield window
    finally:
        window.close()
