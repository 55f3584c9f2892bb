"""Repeats a demonstration in another initial state, as MimicGen does (arXiv:2310.17596).

The path of the demonstrated hand is shifted (`rrf.envs.demonstrations.path`). Until the
demonstrated object moves, the shift grows to the difference between the objects of the two initial
states; from then on, it turns into the difference between the goals. Where nothing is moved, the
goal counts as the object.

The positions of object and goal are the simulator's, known when data are made. No policy sees them.
Nothing is promised: whoever repeats a demonstration keeps the episodes that succeed.
"""

import typing

import numpy as np

from rrf.envs.demonstrations.path import Bend, ShiftedPath

_HAND, _OBJECT, _GOAL = slice(0, 3), slice(4, 7), slice(36, 39)
_HAS_MOVED_M = 0.01  # more than objects settle by when an episode begins


class Demonstration(typing.NamedTuple):
    """What an expert saw and did in T actions."""

    observations: np.ndarray  # float64 [T, 39], of `MetaWorldVecEnv.expert_observation`
    actions: np.ndarray  # float32 [T, 4]


class Replay(ShiftedPath):
    """Has the contract of `rrf.envs.metaworld.env.Expert`. Make a new one for each episode."""

    def __init__(self, demonstration: Demonstration, reach_m: float):
        """`reach_m` is how far the hand's target moves in an action of 1."""
        seen, actions = demonstration
        has_moved = np.linalg.norm(seen[:, _OBJECT] - seen[0, _OBJECT], axis=1) > _HAS_MOVED_M
        self._moves_object = bool(has_moved.any())
        divides = int(has_moved.argmax()) if self._moves_object else len(actions)
        super().__init__(seen[:, _HAND], actions, reach_m, divides)
        self._start = seen[0]

    def action(self, observation: np.ndarray) -> np.ndarray:
        """The action, float32 [4] in [-1, 1], for what an expert would see, float64 [39]."""
        if self._step == 0:
            goal = observation[_GOAL] - self._start[_GOAL]
            moved = observation[_OBJECT] - self._start[_OBJECT] if self._moves_object else goal
            self.bend = Bend(moved, goal)
        return self.act(observation[_HAND])
