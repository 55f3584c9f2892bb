"""Our environments as a `VecEnv` of Stable-Baselines3, which takes no `gymnasium.vector.VectorEnv`.

Stable-Baselines3 is no dependency of rrf. Type: uv pip install stable-baselines3
"""

import typing
from collections.abc import Iterable, Sequence

import gymnasium
import numpy as np

from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.vector import GymnasiumVectorEnv, as_gymnasium

try:
    from stable_baselines3.common.vec_env import VecEnv  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise ImportError(
        "'stable_baselines3' is not installed; type: uv pip install stable-baselines3"
    ) from error


def as_sb3(cfg: ControlEnvCfg | str, **options: typing.Any) -> "SB3VecEnv":
    """One of our environments as a `VecEnv` of Stable-Baselines3.

    Args:
        cfg: See `rrf.envs.as_gymnasium`, which also takes the `options`.

    Raises:
        ValueError: See `rrf.envs.as_gymnasium`.
    """
    return SB3VecEnv(as_gymnasium(cfg, **options))


class SB3VecEnv(VecEnv):
    """Passes every call on to `env`."""

    def __init__(self, env: GymnasiumVectorEnv):
        self.env = env
        self.metadata = env.metadata
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> typing.Any:
        """Begin new episodes, from the seed that `seed` was told, if any."""
        observations, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[typing.Any, np.ndarray, np.ndarray, list[dict]]:
        """Step. The infos of ended episodes have what Stable-Baselines3 asks for."""
        observations, rewards, terminations, truncations, infos = self.env.step(self._actions)
        dones, each = terminations | truncations, [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(dones):
            each[index] = {
                "terminal_observation": infos["final_obs"][index],
                "TimeLimit.truncated": bool(truncations[index]),
            }
        return observations, rewards.astype(np.float32), dones, each

    def close(self) -> None:
        """Free threads, processes and memory."""
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Pictures of all environments, with render_mode="rgb_array"."""
        return list(self.env.render() or [None] * self.num_envs)

    def get_attr(self, attr_name: str, indices: typing.Any = None) -> list[typing.Any]:
        """An attribute of the tasks that are asked for; see `GymnasiumVectorEnv.call`."""
        if attr_name == "render_mode":  # ours: the tasks were made without one
            return [self.env.render_mode] * len(self._env_numbers(indices))
        values = self.env.get_attr(attr_name)
        return [values[index] for index in self._env_numbers(indices)]

    def set_attr(self, attr_name: str, value: typing.Any, indices: typing.Any = None) -> None:
        """Set an attribute of the tasks that are asked for."""
        self.env.set_attr(attr_name, value, self._env_numbers(indices))

    def env_method(
        self,
        method_name: str,
        *method_args: typing.Any,
        indices: typing.Any = None,
        **method_kwargs: typing.Any,
    ) -> list[typing.Any]:
        """Call a method of the tasks that are asked for."""
        numbers = self._env_numbers(indices)
        return list(self.env.call(method_name, *method_args, env_ids=numbers, **method_kwargs))

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper], indices: typing.Any = None
    ) -> list[bool]:
        """Whether the tasks that are asked for are wrapped so."""
        return self.env.is_wrapped(wrapper_class, self._env_numbers(indices))

    def _env_numbers(self, indices: int | Iterable[int] | None) -> Sequence[int]:
        return list(self._get_indices(indices))
