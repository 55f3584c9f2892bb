"""The base class of the wrappers: an environment that passes every call on to the one it wraps."""

import typing

import torch
from tensordict import TensorDict

from rrf.envs.control_env import ControlEnv, EnvState, Interface

_OF_DYNAMIC_ENV = ("dim_params", "reward_names", "policy_observations")


class ControlEnvWrapper:
    """Behaves like `env`. Subclasses override what they change.

    Attributes:
        env: The wrapped environment, which may itself be a wrapper.
        unwrapped: The innermost environment.
    """

    def __init__(self, env: ControlEnv):
        self.env = env
        inner = env.unwrapped if isinstance(env, ControlEnvWrapper) else env
        self.unwrapped: typing.Any = inner

    def __getattr__(self, name: str) -> typing.Any:
        if name in _OF_DYNAMIC_ENV:
            return getattr(self.env, name)
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    @property
    def step_dt(self) -> float:
        return self.interface.step_dt

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    @property
    def max_episode_length(self) -> int:
        return self.env.max_episode_length

    @property
    def device(self) -> torch.device | str:
        return self.env.device

    @property
    def cfg(self) -> typing.Any:
        return self.env.cfg

    @property
    def interface(self) -> Interface:
        return self.env.interface

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """int64 [N], may be set."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: torch.Tensor) -> None:
        self.env.episode_length_buf = lengths

    def get_observations(self) -> TensorDict:
        """See `ControlEnv.get_observations`."""
        return self.env.get_observations()

    def reset(self) -> tuple[TensorDict, dict]:
        """See `ControlEnv.reset`."""
        return self.env.reset()

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        return self.env.step(actions)

    def state(self) -> EnvState | None:
        """See `ControlEnv.state`."""
        return self.env.state()

    def load_state(self, state: EnvState) -> None:
        """See `ControlEnv.load_state`."""
        self.env.load_state(state)

    def close(self) -> None:
        """See `ControlEnv.close`."""
        self.env.close()
