"""The environment contract: many copies of a task stepped together, actions given as chunks.

Compatible with rsl_rl's VecEnv in what it returns (observations, rewards, ends,
`extras["time_outs"]`, `extras["log"]`) and stricter where that loses information: `terminated` and
`truncated` stay apart, `extras["final_obs"]` is the observation the ended episodes really ended in,
and success is its own signal.

Legend: B environments asked for in this call, H steps in an action chunk, A action dimension, D
state dimension.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

if typing.TYPE_CHECKING:
    from rrf.data.schema import Observation


@dataclasses.dataclass(frozen=True)
class InitialState:
    """One reproducible start: the `index`-th initial state that `seed` generates for `task`."""

    task: str
    seed: int
    index: int


@dataclasses.dataclass
class Step:
    """The result of one action chunk. An episode that ends inside it ignores the rest of it."""

    observation: "Observation"
    reward: np.ndarray  # float32 [B], summed over the executed steps of the chunk
    terminated: np.ndarray  # bool [B], the task itself ended (by success, if that ends episodes)
    truncated: np.ndarray  # bool [B], the horizon was reached first
    success: np.ndarray  # bool [B], solved at this or an earlier step
    steps: np.ndarray  # int64 [B], action steps executed in this chunk (1..H)
    extras: dict[str, typing.Any]
    """time_outs (bool [B]), log (dict[str, float]), final_obs (Observation | None), success_at_end
    (bool [B], solved where the chunk ended) and, where the simulator tells it, rewards (float32
    [B, H]: of each action step, 0 where none was executed) and metrics (dict[str, float64 [B]]: of
    the episodes up to now, see `VecEnvCfg.measures`)."""


class VecEnv(typing.Protocol):
    """B slots, each running one episode. A slot whose episode ended waits for `reset`.

    No slot is ever reset silently. Images are rendered once per call, where the chunk ends.
    """

    num_envs: int
    chunk_length: int
    action_dim: int
    state_dim: int
    fps: int
    max_episode_steps: int

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> "Observation":
        """Start episodes in the slots `env_ids`, all by default.

        The same initial state always gives the same episode.

        Raises:
            ValueError: For an unknown task, an index out of range, or lengths that differ.
        """
        ...

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """Execute `actions`, float32 [B, H, A] clipped to [-1, 1], in the slots `env_ids`.

        Raises:
            ValueError: For a wrong shape, a NaN or Inf action (naming slot, step and dimension),
                or a slot whose episode has ended.
        """
        ...

    def close(self) -> None:
        """Free processes and memory. Calling it twice is allowed."""
        ...


@typing.runtime_checkable
class ExpertVecEnv(typing.Protocol):
    """A `VecEnv` that also has a scripted expert for each of its tasks. The config of such an
    environment sets `has_expert` (`rrf.envs.configs.VecEnvCfg`)."""

    def expert_action(self, env_id: int) -> np.ndarray:
        """The expert's answer to the present state of a running slot, float32 [A] in [-1, 1].

        It is asked once before each action step, whoever chooses the action, so that an expert may
        remember what it saw of the episode.
        """
        ...


def check_actions(
    actions: np.ndarray, env_ids: Sequence[int], chunk_length: int, action_dim: int
) -> None:
    """Raise ValueError for a chunk of the wrong shape or with a NaN or Inf, saying where."""
    shape = (len(env_ids), chunk_length, action_dim)
    if actions.shape != shape:
        raise ValueError(
            f"actions have shape {list(actions.shape)}, expected [B, H, A] = {list(shape)}"
        )
    bad = np.argwhere(~np.isfinite(actions))
    if len(bad):
        row, step, dimension = bad[0].tolist()
        value = actions[row, step, dimension]
        raise ValueError(
            f"action of env {env_ids[row]}, step {step}, dimension {dimension} is {value}; "
            "not executed"
        )
