"""The wrapper chain for an mjlab environment that is already built, under its original class names.

    env = ManagerBasedRlEnv(cfg=my_cfg, device="cuda:0")
    wrapped = MJLabDynamicEnvWrapper(env)
    obs, extras = wrapped.reset()  # float32 [N, policy_dim]

`RoboRenForceMJLabEnvWrapper` and `MJLabGroupVecWrapper` are `ControlEnv`s. `MJLabDynamicEnvWrapper`
returns the policy's observations as one tensor instead, and all groups in `extras["observations"]`.
For a `ControlEnv` with reward terms, use `DynamicEnv`.

Legend: N environments.
"""

import typing

import torch
from tensordict import TensorDict

from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.env import MjlabEnv
from rrf.envs.mjlab.global_randomness import GlobalRandomness
from rrf.envs.mjlab.task import check_recorders
from rrf.envs.wrappers.dynamic_env import DynamicEnv
from rrf.envs.wrappers.group_vec import GroupVecWrapper

_TASK = "an mjlab environment"


class RoboRenForceMJLabEnvWrapper(MjlabEnv):
    """An mjlab `ManagerBasedRlEnv` that is already built, as a `ControlEnv`.

    The wrapper switches off the environment's `auto_reset` and resets ended environments itself, so
    that it can show how an episode ended.
    """

    def __init__(self, env: typing.Any, seed: int | None = None):
        """Wrap `env`.

        Args:
            env: A `ManagerBasedRlEnv`.
            seed: Seed of the random numbers that its terms draw from now on; None takes the seed of
                its config.

        Raises:
            ValueError: If it has recorders.
        """
        check_recorders(env.recorder_manager.active_terms)
        env.cfg.auto_reset = False
        cfg = MjlabEnvCfg(task=_TASK, num_envs=env.num_envs, backend="mjlab")
        of_cfg: int = env.cfg.seed or 0
        super().__init__(cfg, env, GlobalRandomness(of_cfg if seed is None else seed, env.device))


class MJLabDynamicEnvWrapper(DynamicEnv):
    """Reward terms, command and `dim_params` of an mjlab environment, in plain tensors."""

    def __init__(self, env: typing.Any):
        """`env` is a `ManagerBasedRlEnv`, or a `ControlEnv`."""
        super().__init__(_as_control_env(env))

    def get_observations(self) -> torch.Tensor:  # type: ignore[override]
        """The current observations, float32 [N, policy_dim]."""
        return self.policy_observations(super().get_observations())

    def reset(self) -> tuple[torch.Tensor, dict]:  # type: ignore[override]
        """Start new episodes; returns float32 [N, policy_dim], and extras with "observations"."""
        return self._plain(*super().reset())

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict]:  # type: ignore[override]
        """float32 [N, policy_dim], rewards [N], dones [N], and extras with "observations"."""
        observations, rewards, dones, extras = super().step(actions)
        policy, extras = self._plain(observations, extras)
        return policy, rewards, dones, extras

    def _plain(self, observations: TensorDict, extras: dict) -> tuple[torch.Tensor, dict]:
        return self.policy_observations(observations), extras | {"observations": observations}


class MJLabGroupVecWrapper(GroupVecWrapper):
    """The training view of an mjlab environment, whose last environments evaluate."""

    def __init__(self, env: typing.Any, num_eval_envs: int, **runtime: typing.Any):
        """`env` is a `ManagerBasedRlEnv`, an `MJLabDynamicEnvWrapper` or a `ControlEnv`.

        The other arguments are those of `GroupVecWrapper`.
        """
        super().__init__(_as_control_env(env), num_eval_envs, **runtime)


def _as_control_env(env: typing.Any) -> typing.Any:
    from mjlab.envs import ManagerBasedRlEnv

    if isinstance(env, MJLabDynamicEnvWrapper):
        return DynamicEnv(env.env)
    return RoboRenForceMJLabEnvWrapper(env) if isinstance(env, ManagerBasedRlEnv) else env
