"""The bookkeeping that every vector environment needs: which slots are empty, running or ended, and
the `Step` built from their results.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.observations import rows_of
from rrf.envs.vec_env import InitialState, Step


class Slots:
    """The state of `num_envs` slots, each empty, running or ended."""

    def __init__(self, num_envs: int, ignores_success: bool = False):
        """`ignores_success`: episodes end at their horizon only."""
        self.num_envs, self._ignores_success = num_envs, ignores_success
        self._was_solved = np.zeros(num_envs, bool)
        self._has_episode = np.zeros(num_envs, bool)
        self._has_ended = np.zeros(num_envs, bool)
        self._num_steps = np.zeros(num_envs, np.int64)
        self._is_closed = False

    def check(self, env_ids: Sequence[int] | None) -> list[int]:
        """`env_ids` as a list, or all slots for None.

        Raises:
            ValueError: For a closed environment, an empty list, or a slot that is unknown or named
                twice.
        """
        if self._is_closed:
            raise ValueError("this environment is closed; build a new one")
        if env_ids is None:
            return list(range(self.num_envs))
        slots = [int(env_id) for env_id in env_ids]
        if not slots:
            raise ValueError("env_ids is empty; name at least one slot")
        for slot in slots:
            if not 0 <= slot < self.num_envs:
                raise ValueError(f"no env {slot}; there are {self.num_envs}, numbered from 0")
        if len(set(slots)) != len(slots):
            raise ValueError(f"env_ids {slots} name a slot twice")
        return slots

    def check_reset(
        self,
        initial_states: Sequence[InitialState],
        env_ids: Sequence[int] | None,
        check_initial_state: Callable[[InitialState], None],
    ) -> list[int]:
        """The slots to reset, after checking that the reset can be done.

        Raises:
            ValueError: As `check` does; if the number of initial states differs from the number of
                slots; and whatever `check_initial_state` raises.
        """
        slots = self.check(env_ids)
        if len(initial_states) != len(slots):
            raise ValueError(f"{len(initial_states)} initial states for {len(slots)} slots")
        for initial_state in initial_states:
            check_initial_state(initial_state)
        return slots

    def check_has_episode(self, slot: int) -> None:
        """Raise ValueError for a slot that was never reset."""
        if not self._has_episode[slot]:
            raise ValueError(f"env {slot} has no episode yet; call reset first")

    def check_running(self, slots: Sequence[int]) -> None:
        """Raise ValueError for a slot that was never reset or whose episode has ended."""
        for slot in slots:
            self.check_has_episode(slot)
            if self._has_ended[slot]:
                raise ValueError(
                    f"the episode of env {slot} has ended; reset it before stepping again"
                )

    @property
    def running(self) -> list[int]:
        """The slots whose episode has begun and not ended."""
        return np.flatnonzero(self._has_episode & ~self._has_ended).tolist()

    def begin(self, slots: Sequence[int]) -> None:
        """Mark slots as running, at step 0."""
        self._has_episode[slots] = True
        self._has_ended[slots] = self._was_solved[slots] = False
        self._num_steps[slots] = 0

    def clear(self, slots: Sequence[int]) -> None:
        """Mark slots as empty."""
        self._has_episode[slots] = False

    def close(self) -> None:
        """Refuse every further call."""
        self._is_closed = True

    def finish_step(
        self,
        slots: Sequence[int],
        observation: Observation,
        reward: np.ndarray,
        success: np.ndarray,
        truncated: np.ndarray,
        steps: np.ndarray,
        rewards: np.ndarray | None = None,
        success_at_end: np.ndarray | None = None,
    ) -> Step:
        """Mark the slots whose episode ended and build the `Step` of one call.

        All arrays are in the order of `slots`.

        Args:
            success: bool [B], solved in this chunk.
            truncated: bool [B], the horizon was reached; not by an episode that success ended.
            rewards: float32 [B, H], of each action step; None if it is not known.
            success_at_end: bool [B], solved where the chunk ended; None: where it was solved.
        """
        extras = {"success_at_end": (success if success_at_end is None else success_at_end).copy()}
        if rewards is not None:
            extras["rewards"] = rewards
        terminated = success.copy()
        if self._ignores_success:
            self._was_solved[slots] |= success
            terminated[:], success = False, self._was_solved[slots]
        ended = terminated | truncated
        self._has_ended[slots] = ended
        self._num_steps[slots] += steps
        final = rows_of(observation, np.flatnonzero(ended)) if ended.any() else None
        return Step(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            steps=steps,
            extras=extras
            | {
                "time_outs": truncated.copy(),
                "final_obs": final,
                "log": self._log(np.asarray(slots), success, ended),
            },
        )

    def _log(self, slots: np.ndarray, success: np.ndarray, ended: np.ndarray) -> dict[str, float]:
        if not ended.any():
            return {}
        return {
            "episode/success": float(success[ended].mean()),
            "episode/steps": float(self._num_steps[slots[ended]].mean()),
        }
