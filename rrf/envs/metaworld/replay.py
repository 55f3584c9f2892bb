"""Repeats a demonstration in another initial state, as MimicGen does (arXiv:2310.17596).

The path of the demonstrated hand is shifted. It begins where it began. Until the demonstrated
object moves, the shift grows to the difference between the objects of the two initial states; from
then on, it turns into the difference between the goals. Where nothing is moved, the goal counts as
the object. A proportional correction keeps the hand on the shifted path.

The positions of object and goal are the simulator's, known when data are made. No policy sees them.
With a bend that was found by trial and error (`rrf.envs.demonstrations.trials`), they are not read.
Nothing is promised: whoever repeats a demonstration keeps the episodes that succeed.
"""

import typing

import numpy as np

from rrf.envs.demonstrations.trials import Bend, first_change

_HAND, _OBJECT, _GOAL = slice(0, 3), slice(4, 7), slice(36, 39)
_HAS_MOVED_M = 0.01  # more than objects settle by when an episode begins
_CORRECTION = 0.5  # of the distance to the path, per action
_MAX_EXTRA_STEPS = 6  # the last action is repeated this often


class Demonstration(typing.NamedTuple):
    """What an expert saw and did in T actions."""

    observations: np.ndarray  # float64 [T, 39], of `MetaWorldVecEnv.expert_observation`
    actions: np.ndarray  # float32 [T, 4]


class Replay:
    """Has the contract of `rrf.envs.metaworld.env.Expert`. Make a new one for each episode."""

    def __init__(self, demonstration: Demonstration, reach_m: float, bend: Bend | None = None):
        """`reach_m` is how far the hand's target moves in an action of 1. A `bend` says by how much
        the path is shifted; without one, the positions of object and goal do."""
        self._demonstration, self._reach_m, self._bend = demonstration, reach_m, bend
        self._num_actions = len(demonstration.actions)
        self._step = 0
        if bend:
            self._shifts, self._first_moved = bend, first_change(demonstration.actions[:, 3])
            return
        objects = demonstration.observations[:, _OBJECT]
        has_moved = np.linalg.norm(objects - objects[0], axis=1) > _HAS_MOVED_M
        self._moves_object = bool(has_moved.any())
        self._first_moved = int(has_moved.argmax()) if self._moves_object else self._num_actions
        self._shifts = (np.zeros(3), np.zeros(3))  # of the object and of the goal, in metres

    @property
    def is_over(self) -> bool:
        """Whether the demonstration has been repeated to its end and success is not expected."""
        return self._step > self._num_actions + _MAX_EXTRA_STEPS

    def action(self, observation: np.ndarray) -> np.ndarray:
        """The action, float32 [4] in [-1, 1], for what an expert would see, float64 [39]."""
        seen, actions = self._demonstration
        if self._step == 0 and not self._bend:
            goal = observation[_GOAL] - seen[0, _GOAL]
            moved = observation[_OBJECT] - seen[0, _OBJECT] if self._moves_object else goal
            self._shifts = moved, goal
        row = min(self._step, self._num_actions - 1)
        shift, next_shift = self._shift(row), self._shift(row + 1)
        error = seen[row, _HAND] + shift - observation[_HAND]
        command = actions[row].astype(np.float64)
        command[:3] += (next_shift - shift + _CORRECTION * error) / self._reach_m
        self._step += 1
        return np.clip(command, -1.0, 1.0).astype(np.float32)

    def _shift(self, step: int) -> np.ndarray:
        """By how much the hand's path is shifted at a step of the demonstration, in metres."""
        moved, goal = self._shifts
        reached = 0.6 * (self._first_moved - 1)  # the hand is above the object before it moves
        if step < self._first_moved:
            return moved * min(1.0, step / max(1.0, reached))
        carried = self._num_actions - self._first_moved
        return moved + (goal - moved) * (step - self._first_moved) / max(1, carried)
