"""Videos of a state-based policy, recorded in separate environments."""

import warnings
from pathlib import Path

from rrf.envs.configs import ControlEnvCfg
from rrf.policies.control.actor_critic import Deployed
from rrf.runners import process_group
from rrf.runners.control.loop import ControlRunner, Extra
from rrf.runners.tracker import Tracker

_NUM_ENVS = 4
_SECONDS = 10.0
_MAX_FPS = 25


def film(
    env_cfg: ControlEnvCfg,
    policy: Deployed,
    path: Path,
    seed: int = 0,
    num_envs: int = _NUM_ENVS,
    seconds: float = _SECONDS,
) -> Path:
    """Play `policy` greedily in `num_envs` environments and write them side by side as an MP4.

    Raises:
        ValueError: If environments of this kind cannot be drawn.
    """
    from rrf.envs.rendering.film import record

    device = next(policy.parameters()).device
    env = env_cfg.drawable().replace(num_envs=num_envs).build(seed=seed, device="cpu")
    try:
        policy.to("cpu")
        fps = max(1, min(_MAX_FPS, round(1 / env.interface.step_dt)))
        num_steps = round(seconds / env.interface.step_dt)
        return record(env, policy.deployable(), num_steps, list(range(num_envs)), path, fps)
    finally:
        policy.to(device)
        env.close()


def film_run(runner: ControlRunner, tracker: Tracker) -> Path | None:
    """Write a video of a run's current policy; None if the environment cannot be drawn."""
    if process_group.rank() > 0:
        return None
    path = runner.run_dir / "videos" / f"iteration_{runner.iteration}.mp4"
    try:
        film(runner.cfg.env, runner.policy, path, seed=runner.cfg.seed)
    except (ValueError, OSError) as error:
        warnings.warn(f"no video: {error}", stacklevel=2)
        return None
    tracker.log_artifact(path, "videos")
    return path


class Filming(Extra):
    """Films the policy every `interval` iterations, and at last."""

    def __init__(self, interval: int):
        self.interval = interval

    def after_saving(self, runner: ControlRunner, tracker: Tracker) -> None:
        if runner.is_due(self.interval):
            film_run(runner, tracker)
