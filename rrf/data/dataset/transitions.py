"""The transitions of a published dataset of states, for offline reinforcement learning.

A transition leads from one frame to the next. The last frame of an episode has a transition only if
the task ended there (next.terminated), because what a time limit cut off was not recorded.

Legend: N transitions, D state dimension, A action dimension, E episodes.
"""

import dataclasses
from pathlib import Path

import numpy as np

from rrf.data.dataset.opening import open_dataset
from rrf.data.remedies import again
from rrf.data.schema import REWARD, TERMINATED


@dataclasses.dataclass(frozen=True)
class RecordedTransitions:
    """Transitions in the order of time, episode by episode."""

    observations: np.ndarray  # float32 [N, D]
    actions: np.ndarray  # float32 [N, A], as recorded
    rewards: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N], the task itself ended
    ended: np.ndarray  # bool [N], the last transition of its episode
    next_observations: np.ndarray  # float32 [N, D]; those of terminated ones have no meaning
    returns: np.ndarray  # float64 [E], the sum of all rewards of each episode

    def __len__(self) -> int:
        return len(self.rewards)


def read_transitions(root: str | Path, needs_rewards: bool = True) -> RecordedTransitions:
    """Read a published dataset.

    Args:
        needs_rewards: Refuse a dataset without rewards; otherwise they are NaN there.

    Raises:
        ValueError: If rewards or terminations were not recorded, if an episode goes on after its
            termination, or if there is no transition.
    """
    reader = open_dataset(root, chunk_length=1, cameras=())
    needed = {TERMINATED: "said about what followed its last frames"}
    if needs_rewards:
        needed[REWARD] = "learned from its rewards"
    for key, use in needed.items():
        if key not in reader.schema.scalars:
            field = key.removeprefix("next.")
            raise ValueError(
                f"the dataset at {root} has no {key}, without which nothing can be "
                f"{use}; write `{field}: KEY` into its config in configs/datasets, and "
                f"{again(reader.root, 'convert it again')}"
            )
    parts: dict[str, list[np.ndarray]] = {
        field.name: [] for field in dataclasses.fields(RecordedTransitions)
    }
    for number in range(reader.num_episodes):
        episode = reader.episode(number)
        terminated, reward = episode.terminated, episode.reward
        assert terminated is not None
        if reward is None:
            reward = np.full(len(episode), np.nan, np.float32)
        if terminated[:-1].any():
            frame = int(terminated.argmax())
            raise ValueError(
                f"{episode.source}: next.terminated is true at frame {frame}, but the episode has "
                f"{len(episode)} frames; cut it there, or correct the recordings"
            )
        count = len(episode) if terminated[-1] else len(episode) - 1
        following = np.concatenate([episode.state[1:], episode.state[-1:]])
        columns = {
            "observations": episode.state,
            "actions": episode.action,
            "rewards": reward,
            "terminated": terminated,
            "ended": np.arange(len(episode)) == count - 1,
            "next_observations": following,
        }
        for name, values in columns.items():
            parts[name].append(values[:count])
        parts["returns"].append(reward.sum(keepdims=True, dtype=np.float64))
    transitions = RecordedTransitions(
        **{name: np.concatenate(values) for name, values in parts.items()}
    )
    if not len(transitions):
        raise ValueError(f"the dataset at {root} has no episode of two frames or more")
    return transitions


def returns_to_go(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """The discounted sum of rewards from each transition to the end of its episode, float64 [N]."""
    returns, following = np.zeros(len(rewards)), 0.0
    for row in reversed(range(len(rewards))):
        following = float(rewards[row]) + gamma * following * (not ended[row])
        returns[row] = following
    return returns
