"""Follows the path of a demonstrated hand, shifted, with the demonstrated actions.

The path begins where it began. The first shift grows until the row that divides the path, and then
turns into the last one until the end. A proportional correction keeps the hand on the shifted path.

Legend: T actions of the demonstration, A numbers of an action, of which the first three move the
hand along x, y, z, and the last one the gripper.
"""

import typing

import numpy as np

_CORRECTION = 0.5  # of the distance to the path, per action
_MAX_EXTRA_STEPS = 6  # the last action is repeated this often
_REACHED = 0.6  # of the first part; then the hand is above the object before it moves


class Bend(typing.NamedTuple):
    """By how much the path of the demonstrated hand is shifted, float64 [3] each, in metres."""

    first: np.ndarray
    """At the row that divides the path."""
    last: np.ndarray
    """At the end."""


class ShiftedPath:
    """Acts as an expert does. Make a new one for each episode."""

    def __init__(
        self,
        hand_t3: np.ndarray,
        action_ta: np.ndarray,
        reach_m: float,
        divides: int,
        bend: Bend | None = None,
    ):
        """
        Args:
            hand_t3: Where the hand was before each action, in metres.
            action_ta: The actions, in [-1, 1].
            reach_m: How far an action of 1 moves the hand.
            divides: The row in which the first shift is complete; T for the end.
            bend: By how much the path is shifted; None for not yet.
        """
        self._hand_t3, self._action_ta, self._reach_m = hand_t3, action_ta, reach_m
        self._divides, self._num_actions = divides, len(action_ta)
        self._step = 0
        self.bend = bend or Bend(np.zeros(3), np.zeros(3))

    @property
    def is_over(self) -> bool:
        """Whether the demonstration has been repeated to its end and success is not expected."""
        return self._step > self._num_actions + _MAX_EXTRA_STEPS

    def act(self, hand: np.ndarray) -> np.ndarray:
        """The action, float32 [A] in [-1, 1], for a hand that is at [3]."""
        row = min(self._step, self._num_actions - 1)
        shift, next_shift = self._shift(row), self._shift(row + 1)
        error = self._hand_t3[row] + shift - hand
        command = self._action_ta[row].astype(np.float64)
        command[:3] += (next_shift - shift + _CORRECTION * error) / self._reach_m
        self._step += 1
        return np.clip(command, -1.0, 1.0).astype(np.float32)

    def _shift(self, row: int) -> np.ndarray:
        """By how much the hand's path is shifted at a row of the demonstration, in metres."""
        first, last = self.bend
        if row < self._divides:
            return first * min(1.0, row / max(1.0, _REACHED * (self._divides - 1)))
        rest = self._num_actions - self._divides
        return first + (last - first) * (row - self._divides) / max(1, rest)


def first_change(gripper_t: np.ndarray) -> int:
    """The first row in which the gripper is asked to move the other way, T if there is none.

    `gripper_t` are its commands, float [T]; their signs count.
    """
    changes = np.flatnonzero(np.diff(gripper_t > 0))
    return int(changes[0]) + 1 if len(changes) else len(gripper_t)


def reach_of(hand_t3: np.ndarray, action_ta: np.ndarray) -> float:
    """How far an action of 1 moves the hand: the length of a path over that of its commands, in
    metres. Raises ValueError if the hand did not move along its commands."""
    moved_t3, asked_t3 = np.diff(hand_t3, axis=0), action_ta[:-1, :3]
    lengths = np.linalg.norm(moved_t3, axis=1).sum(), np.linalg.norm(asked_t3, axis=1).sum()
    along = (moved_t3 * asked_t3).sum()
    if along < 0.5 * np.linalg.norm(moved_t3) * np.linalg.norm(asked_t3) or not along:
        raise ValueError(
            "the first three numbers of an action do not move the hand along x, y and z here, so a "
            "demonstration cannot be bent"
        )
    return float(lengths[0] / lengths[1])
