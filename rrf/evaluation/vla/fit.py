"""Whether a policy fits the environment of a protocol: dimensions, and what numbers mean there."""

from collections.abc import Mapping

from rrf.envs.configs import VecEnvCfg


def misfit_dims(state_dim: int, action_dim: int, env: VecEnvCfg) -> list[str]:
    """Differences between a policy's dimensions and the environment's; 0 and None: not known."""
    sizes = (("states", state_dim, env.state_dim), ("actions", action_dim, env.action_dim))
    return [
        f"has {what} of {mine} numbers, not of the {its} of {env.simulator}"
        for what, mine, its in sizes
        if mine and its and mine != its
    ]


def misfit_conventions(trained: Mapping, env: VecEnvCfg) -> list[str]:
    """Fields that say what images and actions mean, and that differ from the training's.

    Args:
        trained: Plain data of the config of the environment that the policy was trained in, which
            is of the class of `env`.
        env: The environment in which it is to act.
    """
    asked = env.to_dict()
    return [
        f"was trained with env.{name}={trained[name]}, not {asked[name]}"
        for name in env.conventions
        if name in trained and trained[name] != asked[name]
    ]
