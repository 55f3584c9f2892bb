"""Converts a policy's tensors to a Gymnasium space's arrays, and checks that a space is supported.

A policy gives real actions in [-1, 1]. In a dimension with two finite bounds, this interval is
scaled to the bounds, and values outside it are clipped. A dimension with one bound or none is
passed through, and clipped to the bound that it has. A discrete action is given as its index: 0 is
the first action, whatever number the space starts at.

Legend: N environments, A width of an action, O width of an observation.
"""

import numpy as np
import torch
from gymnasium import spaces

from rrf.envs.control_env import check_actions

_UNBOUNDED = 1e9  # a larger bound (often the dtype's largest number) means no bound


class ActionMap:
    """Maps actions, float32 [N, A], to what environments with the action space `space` take."""

    def __init__(self, space: spaces.Space, num_envs: int, task: str):
        """Check the space and prepare the mapping.

        Args:
            space: The action space of one environment.
            num_envs: N.
            task: The task's name in messages.

        Raises:
            ValueError: For a space that is neither a one-dimensional Box of floats nor Discrete.
        """
        self._task = task
        self._num_envs = num_envs
        self.num_choices: int | None = None
        if isinstance(space, spaces.Discrete):
            self.num_actions, self.num_choices = 1, int(space.n)
            self._first = int(space.start)
            return
        is_real = np.issubdtype(space.dtype, np.floating)
        if not isinstance(space, spaces.Box) or not is_real or len(space.shape) != 1:
            raise ValueError(
                f"{task} has the action space {space}; only Discrete and a one-dimensional Box of "
                "floats are supported"
            )
        self.num_actions = space.shape[0]
        self._dtype = space.dtype
        self._low_a, self._high_a = space.low, space.high
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        is_bounded = (np.abs(low) < _UNBOUNDED) & (np.abs(high) < _UNBOUNDED)
        low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
        center_a, scale_a = (low + high) / 2, (high - low) / 2
        self._center_a, self._scale_a = center_a.astype(self._dtype), scale_a.astype(self._dtype)
        self._is_stretched = bool((center_a != 0).any() or (scale_a != 1).any())

    def __call__(self, actions: torch.Tensor) -> np.ndarray:
        """Actions [N, A] of the space's dtype, or int64 [N] for discrete actions.

        Raises:
            ValueError: For actions of another shape or with a NaN or Inf, or for an index that is
                not one of the choices.
        """
        actions_na = actions.detach().cpu().numpy()
        if actions_na.shape != (self._num_envs, self.num_actions) or not _is_finite(actions_na):
            check_actions(actions, self._num_envs, self.num_actions)
        if self.num_choices is None:
            actions_na = actions_na.astype(self._dtype)
            if self._is_stretched:
                actions_na = actions_na * self._scale_a + self._center_a
            return actions_na.clip(self._low_a, self._high_a)
        index_n = actions_na[:, 0].astype(np.int64)
        is_wrong = (index_n != actions_na[:, 0]) | (index_n < 0) | (index_n >= self.num_choices)
        if is_wrong.any():
            env = int(np.argmax(is_wrong))
            raise ValueError(
                f"the action of environment {env} is {actions_na[env, 0]}; {self._task} has the "
                f"actions 0 to {self.num_choices - 1}"
            )
        return index_n + self._first


def visible_dimensions(space: spaces.Space, hidden: list[int], task: str) -> np.ndarray:
    """The dimensions of an observation that the policy may see, int64 [O - len(hidden)].

    Raises:
        ValueError: For a space that is not a one-dimensional Box, or a hidden dimension that does
            not exist.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"{task} has the observation space {space}; only a one-dimensional Box is supported "
            "(no images, no nested observations)"
        )
    width = space.shape[0]
    for dimension in hidden:
        if not 0 <= dimension < width:
            raise ValueError(
                f"hidden names dimension {dimension}; an observation of {task} has 0 to {width - 1}"
            )
    if len(set(hidden)) >= width:
        raise ValueError(f"hidden leaves none of the {width} dimensions of {task} visible")
    return np.setdiff1d(np.arange(width), hidden)


def _is_finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())
