"""Converts between a policy's tensors and the values of a Gymnasium space, and checks that a space
is supported.

A policy gives real actions in [-1, 1]. In a dimension with two finite bounds, this interval is
scaled to the bounds, and values outside it are clipped. A dimension with one bound or none is
passed through, and clipped to the bound that it has. A discrete action is given as its index: 0 is
the first action, whatever number the space starts at.

A policy observes a vector. Observations that are structured otherwise are flattened as
`gymnasium.spaces.flatten` does it: a discrete value becomes a one-hot vector, a matrix is read row
by row, and the parts of a Dict or Tuple are joined in the order of the space, nested ones in their
place. (`gymnasium.spaces.Dict` sorts the keys that it is given as a dict.)

Legend: N environments, A width of an action, O width of an observation.
"""

import textwrap
import typing
from collections.abc import Callable

import numpy as np
from gymnasium import spaces

if typing.TYPE_CHECKING:
    import torch

_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_MAX_SHOWN = 200  # characters of a space in a message
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
        self.num_choices = num_choices(space, task)
        if isinstance(space, spaces.Discrete):
            self.num_actions = 1
            self._first = int(space.start)
            return
        assert isinstance(space, spaces.Box)
        self.num_actions = space.shape[0]
        self._dtype = space.dtype
        self._low_a, self._high_a = space.low, space.high
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        is_bounded = (np.abs(low) < _UNBOUNDED) & (np.abs(high) < _UNBOUNDED)
        low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
        center_a, scale_a = (low + high) / 2, (high - low) / 2
        self._center_a, self._scale_a = center_a.astype(self._dtype), scale_a.astype(self._dtype)
        self._is_stretched = bool((center_a != 0).any() or (scale_a != 1).any())

    def __call__(self, actions: "torch.Tensor") -> np.ndarray:
        """Actions [N, A] of the space's dtype, or int64 [N] for discrete actions.

        Raises:
            ValueError: For actions of another shape or with a NaN or Inf, or for an index that is
                not one of the choices.
        """
        actions_na = actions.detach().cpu().numpy()
        if (
            actions_na.shape != (self._num_envs, self.num_actions)
            or not np.isfinite(actions_na).all()
        ):
            from rrf.envs.control_env import check_actions

            check_actions(actions, self._num_envs, self.num_actions)
        if self.num_choices is None:
            return self.taken(actions_na)
        index_n = actions_na[:, 0].astype(np.int64)
        is_wrong = (index_n != actions_na[:, 0]) | (index_n < 0) | (index_n >= self.num_choices)
        if is_wrong.any():
            env = int(np.argmax(is_wrong))
            raise ValueError(
                f"the action of environment {env} is {actions_na[env, 0]}; {self._task} has the "
                f"actions 0 to {self.num_choices - 1}"
            )
        return index_n + self._first

    def taken(self, actions_na: np.ndarray) -> np.ndarray:
        """Real actions of a policy, [N, A], as the task takes them."""
        actions_na = actions_na.astype(self._dtype)
        if self._is_stretched:
            actions_na = actions_na * self._scale_a + self._center_a
        return actions_na.clip(self._low_a, self._high_a)

    def inverse(self, taken_na: np.ndarray) -> np.ndarray:
        """Real actions that the task took, [N, A], as a policy gives them; may lie outside
        [-1, 1] where the task's bounds are exceeded."""
        assert self.num_choices is None
        return ((taken_na - self._center_a) / self._scale_a).astype(np.float32)


def num_choices(space: spaces.Space, task: str) -> int | None:
    """The number of discrete actions of an action space; None for real actions.

    Raises:
        ValueError: For a space that is neither a one-dimensional Box of floats nor Discrete.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if (
        isinstance(space, spaces.Box)
        and np.issubdtype(space.dtype, np.floating)
        and len(space.shape) == 1
        and space.shape[0] > 0
    ):
        return None
    raise ValueError(
        f"{task} has the action space {_brief(space)}; only Discrete and a one-dimensional Box of "
        "floats are supported. Register the task with a gymnasium.ActionWrapper that gives it one "
        "of these"
    )


def observation_width(space: spaces.Space, task: str) -> int:
    """The width of a flattened observation, O.

    Raises:
        ValueError: For a space that contains an image, or something that is not made of numbers.
    """
    for leaf in _leaves(space):
        is_image = isinstance(leaf, spaces.Box) and (
            len(leaf.shape) > 2 or (leaf.dtype == np.uint8 and len(leaf.shape) == 2)
        )
        if is_image or not isinstance(leaf, _LEAVES):
            what = "images" if is_image else type(leaf).__name__
            raise ValueError(
                f"{task} has the observation space {_brief(space)}, but a policy of states cannot "
                f"observe {what}. It observes numbers: Box, Discrete, MultiDiscrete, MultiBinary, "
                "or a Dict or Tuple of these. Register the task with a "
                "gymnasium.ObservationWrapper that gives it one of these"
            )
    if not (width := spaces.flatdim(space)):
        raise ValueError(
            f"{task} has the observation space {_brief(space)}, which holds no number; a policy "
            "needs at least one"
        )
    return width


def flattening(space: spaces.Space) -> Callable[[typing.Any], np.ndarray] | None:
    """A function that makes an observation of `space` a vector; None if it is one already."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return None
    return lambda observation: spaces.flatten(space, observation)  # pyright: ignore[reportReturnType]


def _brief(space: spaces.Space) -> str:
    """The space in one line; arrays of bounds would otherwise fill many."""
    return textwrap.shorten(str(space), _MAX_SHOWN, placeholder=" ...")


def _leaves(space: spaces.Space) -> list[spaces.Space]:
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.values())
    elif isinstance(space, spaces.Tuple):
        parts = list(space.spaces)
    else:
        return [space]
    return [leaf for part in parts for leaf in _leaves(part)]


def visible_dimensions(space: spaces.Space, hidden: list[int], task: str) -> np.ndarray:
    """The dimensions of a flattened observation that the policy may see, int64 [O - len(hidden)].

    Raises:
        ValueError: For a space that `observation_width` refuses, or a hidden dimension that does
            not exist.
    """
    width = observation_width(space, task)
    for dimension in hidden:
        if not 0 <= dimension < width:
            raise ValueError(
                f"hidden names dimension {dimension}; an observation of {task} has 0 to {width - 1}"
            )
    if len(set(hidden)) >= width:
        raise ValueError(f"hidden leaves none of the {width} dimensions of {task} visible")
    return np.setdiff1d(np.arange(width), hidden)
