"""A task of Gymnasium in which some dimensions of the observation are seen every k steps only.

The policy observes, in this order:

* the fast dimensions, seen at every step;
* the slow dimensions. Between two sightings they hold the last value;
* the action before, as the policy gave it, within its bounds; zeros at the start of an episode;
* whether the slow dimensions are of this step, 1 or 0. An episode begins with 1;
* the time since the slow dimensions were seen before this step, as a share of k: 1/k, 2/k, ... up
  to 1, where the next values arrive; 0 at the start of an episode. This is delta in GRU-D
  (arXiv:1606.01865).

The last observation holds all that the next one depends on, so there is no further state to save.

Legend: N environments, O visible width of the task's observation, F fast, S slow, A action width.
"""

import dataclasses
import functools
import typing

import numpy as np
import torch

from rrf.envs.gymnasium.configs import SlowSensorEnvCfg
from rrf.envs.gymnasium.env import GymnasiumEnv


class SlowSensorEnv(GymnasiumEnv):
    """See the module's description; the group "policy" has O + A + 2 numbers."""

    cfg: SlowSensorEnvCfg
    can_hold: typing.ClassVar[bool] = False  # an observation depends on the step before

    def __init__(
        self, cfg: SlowSensorEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        """Build the environments and start their first episodes.

        Raises:
            ValueError: For slow dimensions that do not exist or are hidden, if no dimension is
                fast, for discrete actions, or as in `GymnasiumEnv`.
        """
        super().__init__(cfg, seed, device)
        width = self._observations.shape[1]
        self.interface = dataclasses.replace(self.interface, observation_dims={"policy": width})

    @functools.cached_property
    def _order(self) -> np.ndarray:
        """Where the fast and then the slow dimensions stand in what the task shows, int64 [O]."""
        task, visible = self.cfg.task, self._visible
        if self._map_actions.num_choices is not None:
            raise ValueError(
                f"{task} has discrete actions; SlowSensorEnvCfg supports real actions only"
            )
        unknown = np.setdiff1d(self.cfg.slow, visible)
        if len(unknown):
            raise ValueError(
                f"slow names dimension {unknown[0]}; {task} shows the dimensions "
                f"{', '.join(map(str, visible))}"
            )
        is_slow = np.isin(visible, self.cfg.slow)
        if is_slow.all():
            raise ValueError(f"slow leaves none of the {len(visible)} dimensions of {task} fast")
        return np.concatenate([np.flatnonzero(~is_slow), np.flatnonzero(is_slow)])

    def _advance(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        shown, rewards, terminated, truncated = super()._advance(actions)
        shown, before, interval = shown[:, self._order], self._observations, self.cfg.slow_interval
        num_slow = len(set(self.cfg.slow))
        was_seen, age = before[:, -2] > 0, np.rint(before[:, -1] * interval)
        steps = np.where(was_seen, 1.0, age + 1.0)
        is_seen = steps >= interval
        num_dims = shown.shape[1]
        slow = slice(num_dims - num_slow, num_dims)
        shown[:, slow] = np.where(is_seen[:, None], shown[:, slow], before[:, slow])
        parts = [shown, self.to_policy(actions), is_seen[:, None], steps[:, None] / interval]
        observations = np.concatenate(parts, 1, dtype=np.float32)
        return observations, rewards, terminated, truncated

    @property
    def observation_bounds(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Those of the task, and of the action, the sighting and the age."""
        low, high = (bound[self._order] for bound in super().observation_bounds["policy"])
        unbounded = np.full(self.num_actions, np.inf, np.float32)
        ones = np.ones(2, np.float32)
        lows, highs = [low, -unbounded, 0 * ones], [high, unbounded, ones]
        return {"policy": (np.concatenate(lows), np.concatenate(highs))}

    def _first_observation(
        self, env: int, seed: int | None = None, options: dict[str, typing.Any] | None = None
    ) -> np.ndarray:
        shown = super()._first_observation(env, seed, options)[self._order]
        return np.concatenate([shown, np.zeros(self.num_actions), [1.0, 0.0]], dtype=np.float32)
