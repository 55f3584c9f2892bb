"""One of our environments as a single `gymnasium.Env`."""

import typing

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.vector import GymnasiumVectorEnv, as_gymnasium, cfg_of


def as_gymnasium_env(cfg: ControlEnvCfg | str, **options: typing.Any) -> "GymnasiumSingleEnv":
    """One of our environments as a single `gymnasium.Env`.

    Args:
        cfg: See `rrf.envs.as_gymnasium`, which also takes the `options`, without `num_envs` and
            `autoreset_mode`.
    """
    cfg = cfg_of(cfg) if isinstance(cfg, str) else cfg
    mode = AutoresetMode.DISABLED
    return GymnasiumSingleEnv(as_gymnasium(cfg, num_envs=1, autoreset_mode=mode, **options))


class GymnasiumSingleEnv(gymnasium.Env):
    """A vector environment of one, without its first axis; see `as_gymnasium_env`."""

    def __init__(self, vector: GymnasiumVectorEnv):
        self.vector, self.spec = vector, vector.spec
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.render_mode = vector.render_mode
        self.metadata = {
            name: value for name, value in vector.metadata.items() if name != "autoreset_mode"
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, typing.Any] | None = None
    ) -> tuple[typing.Any, dict[str, typing.Any]]:
        """Begin a new episode; see `GymnasiumVectorEnv.reset`."""
        super().reset(seed=seed)
        observations, _ = self.vector.reset(seed=seed, options=options)
        return _first(observations), {}

    def step(
        self, action: typing.Any
    ) -> tuple[typing.Any, float, bool, bool, dict[str, typing.Any]]:
        """Execute an action, [A], or an index. After its end, an episode has to be reset."""
        result = self.vector.step(np.asarray(action)[None])
        observations, rewards, terminations, truncations, _ = result
        end = bool(terminations[0]), bool(truncations[0])
        return _first(observations), float(rewards[0]), *end, {}

    def render(self) -> typing.Any:
        """A picture, uint8 [H, W, 3]; None without `render_mode`."""
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Free threads, processes and memory. Calling it twice is allowed."""
        self.vector.close()


def _first(observations: np.ndarray | dict[str, np.ndarray]) -> typing.Any:
    if isinstance(observations, dict):
        return {name: values[0] for name, values in observations.items()}
    return observations[0]
