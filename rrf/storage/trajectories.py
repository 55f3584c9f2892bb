"""Episodes that a policy played, and the flat batch from which policy gradients are computed.

A row is one decision: one observation, one action chunk, one reward. Episodes have different
lengths, so batches are flat: the rows of all episodes, one after another.

Legend: N rows, H steps in an action chunk, A action dimension, K = H * A, V values per row.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from rrf.data.schema import Observation
from rrf.envs.observations import join, rows_of
from rrf.envs.vec_env import InitialState


@dataclasses.dataclass(frozen=True)
class Job:
    """An episode to play. Its `id` determines its randomness, no matter who plays it and when."""

    id: int  # unique within a round of rollouts
    group: int  # jobs of one group have the same initial state
    initial_state: InitialState


@dataclasses.dataclass
class PlayedEpisode:
    """An episode of T decisions."""

    job: Job
    observation: Observation | None  # T rows; None if they were not kept
    replay: dict[str, torch.Tensor]  # [T, ...], what the policy needs to evaluate its choice again
    log_prob: torch.Tensor  # float32 [T, K], at the time of the choice; [T, 0] if greedy
    value: torch.Tensor  # float32 [T, V], NaN [T, 1] without a critic
    reward: np.ndarray  # float32 [T], the environment's own
    steps: np.ndarray  # int64 [T], steps executed of each chunk, 1..H
    success: bool  # solved at any time
    truncated: bool  # the horizon was reached before the task ended
    final_value: float  # value of the last observation of a truncated episode, else NaN
    policy_version: int
    reset_digest: str  # digest of the first observation
    recording: dict | None = None  # see `rrf.orchestra.recording_role`
    stopped_early: bool = False  # without hope; see `rrf.runners.vla_rl.early_stop`
    weight: float = 1.0  # of what it achieved; more for one that went on against a stop
    final_replay: dict[str, torch.Tensor] | None = None
    """`replay` of the greedy choice in the last observation of a truncated episode; None if that
    was not seen."""
    step_reward: np.ndarray | None = None
    """float32 [num_steps], the environment's own of each action; None if it did not tell."""
    success_at_end: bool | None = None
    """Whether the task was solved when the episode ended; None: as `success`."""
    steps_to_success: int | None = None
    """Action steps until the end of the first chunk in which it was solved; None: `num_steps`."""

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def num_steps(self) -> int:
        """Number of executed action steps."""
        return int(self.steps.sum())


@dataclasses.dataclass
class RolloutBatch:
    """N rows, ready for minibatches."""

    observation: Observation
    replay: dict[str, torch.Tensor]  # [N, ...]
    log_prob: torch.Tensor  # float32 [N, K]
    mask: torch.Tensor  # bool [N, K], False where the episode ended before the step was executed
    advantage: torch.Tensor  # float32 [N, 1], or [N, H]: one for each action
    weight: torch.Tensor  # float32 [N], weight of a row in the policy loss
    value: torch.Tensor  # float32 [N, V], NaN [N, 1] without a critic
    returns: torch.Tensor  # float32 [N, V], targets of the critic, NaN without one
    version: torch.Tensor  # int64 [N], of the weights that acted
    proximal: torch.Tensor | None = None  # float32 [N, K], log-prob at the begin of the update

    def __len__(self) -> int:
        return len(self.advantage)

    @property
    def value_mask(self) -> torch.Tensor:
        """Bool [N, V]: the values that belong to a decision or to an executed action."""
        return self.mask.unflatten(1, (self.value.shape[1], -1)).any(-1)

    def rows(self, index: torch.Tensor, device: torch.device | str | None = None) -> "RolloutBatch":
        """A copy of the rows at `index`; on a device, but for the observations, if one is given."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tensors = {n: values for n, values in fields.items() if isinstance(values, torch.Tensor)}
        return RolloutBatch(
            observation=rows_of(self.observation, index.numpy()),
            replay={name: values[index].to(device) for name, values in self.replay.items()},
            **{name: values[index].to(device) for name, values in tensors.items()},
        )


def flatten(
    episodes: Sequence[PlayedEpisode],
    advantages: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    returns: Sequence[torch.Tensor] | None = None,
    *,
    chunk_length: int,
) -> RolloutBatch:
    """The rows of all episodes, one after another.

    Args:
        episodes: At least one.
        advantages: For each episode, float32 [T, 1] or [T, H].
        weights: For each episode, float32 [T].
        returns: For each episode, float32 [T, V]; None without a critic.
    """
    values = torch.cat([episode.value for episode in episodes])
    return RolloutBatch(
        *decisions(episodes, chunk_length),
        advantage=torch.cat(list(advantages)),
        weight=torch.cat(list(weights)),
        value=values,
        returns=torch.full_like(values, torch.nan) if returns is None else torch.cat(list(returns)),
        version=torch.tensor([e.policy_version for e in episodes for _ in range(len(e))]),
    )


def decisions(
    episodes: Sequence[PlayedEpisode], chunk_length: int
) -> tuple[Observation, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """The first four fields of a `RolloutBatch`: observations and choices of all episodes."""
    log_prob = torch.cat([episode.log_prob for episode in episodes])
    steps = torch.from_numpy(np.concatenate([episode.steps for episode in episodes]))
    names = episodes[0].replay
    return (
        join([_kept_observation(episode) for episode in episodes]),
        {name: torch.cat([episode.replay[name] for episode in episodes]) for name in names},
        log_prob,
        executed_mask(steps, chunk_length, log_prob.shape[1]),
    )


def executed_mask(steps: torch.Tensor, chunk_length: int, num_elements: int) -> torch.Tensor:
    """Bool [N, K]: which log-probabilities belong to executed steps.

    Args:
        steps: int64 [N], executed steps of each chunk.
        chunk_length: H.
        num_elements: K, the number of log-probabilities of a chunk; they are ordered by step.
    """
    executed_nh = torch.arange(chunk_length) < steps.unsqueeze(1)
    return executed_nh.repeat_interleave(num_elements // chunk_length, dim=1)


def _kept_observation(episode: PlayedEpisode) -> Observation:
    assert episode.observation is not None, "an episode without observations cannot be trained on"
    return episode.observation
