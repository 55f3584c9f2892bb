"""A video of a state-based policy, recorded in separate environments."""

from pathlib import Path

from rrf.envs.configs import ControlEnvCfg
from rrf.policies.control.actor_critic import Deployed

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
