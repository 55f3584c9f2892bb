"""How a policy expresses actions: absolute, relative to the state, or as differences.

Legend: B rows, K steps of a chunk, A action dimension, D state dimension.
"""

import dataclasses

import numpy as np

PREDICTED = "action.predicted"
"""Key of the statistics of what a policy predicts, if it is not the actions as they are."""

Pairs = tuple[tuple[int, int], ...]
"""(action dimension, the state dimension that measures the same), ..."""


@dataclasses.dataclass(frozen=True)
class Representation:
    """Dimensions of an action that are expressed otherwise than absolutely.

    relative: action minus the state when the chunk begins, for every step (as openpi and GR00T do).
    delta: action minus the action of the step before; that of the first step minus the state.
    """

    relative: Pairs = ()
    delta: Pairs = ()

    def __post_init__(self):
        dims = [action for action, _ in (*self.relative, *self.delta)]
        doubled = next((dim for dim in dims if dims.count(dim) > 1), None)
        if doubled is not None:
            raise ValueError(
                f"action dimension {doubled} is named more than once; it is either relative or a "
                "difference"
            )

    @property
    def is_absolute(self) -> bool:
        """Whether nothing is changed."""
        return not self.relative and not self.delta

    def apply(self, action_bka: np.ndarray, state_bd: np.ndarray) -> np.ndarray:
        """Absolute actions, float32 [B, K, A], and states [B, D] to what the policy predicts.

        Raises:
            ValueError: For a dimension that action or state do not have.
        """
        values, state = self._checked(action_bka, state_bd)
        for action, of in self.relative:
            values[:, :, action] -= state[:, of, None]
        for action, of in self.delta:
            before_bk = np.concatenate([state[:, of, None], values[:, :-1, action]], axis=1)
            values[:, :, action] = values[:, :, action] - before_bk
        return values.astype(np.float32)

    def invert(self, predicted_bka: np.ndarray, state_bd: np.ndarray) -> np.ndarray:
        """The inverse of `apply`, up to float32 rounding."""
        values, state = self._checked(predicted_bka, state_bd)
        for action, of in self.relative:
            values[:, :, action] += state[:, of, None]
        for action, of in self.delta:
            values[:, :, action] = np.cumsum(values[:, :, action], axis=1) + state[:, of, None]
        return values.astype(np.float32)

    def _checked(
        self, action_bka: np.ndarray, state_bd: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        for action, of in (*self.relative, *self.delta):
            if not (0 <= action < action_bka.shape[-1] and 0 <= of < state_bd.shape[-1]):
                raise ValueError(
                    f"action dimension {action} is expressed by state dimension {of}, but there "
                    f"are {action_bka.shape[-1]} dimensions of action and {state_bd.shape[-1]} of "
                    "state"
                )
        return action_bka.astype(np.float64), state_bd.astype(np.float64)
