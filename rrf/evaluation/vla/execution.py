"""How an evaluation executes chunks; `rrf.evaluation.vla.execution_configs` has the rules.

Actions do not depend on which episodes run at the same time. Matrix products round differently for
different batch sizes. Therefore a greedy policy always gets batches of one size, the last one
padded. A policy that samples has one generator per episode and is called for one episode at a time.

Legend: B running episodes, H steps in an action chunk, K remaining steps of a running chunk, E
executed steps per observation, A action dimension.
"""

import collections
import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

from rrf.client import schedules
from rrf.data.schema import Observation
from rrf.envs.observations import join, padded
from rrf.evaluation.vla.execution_configs import (
    ExecutionCfg,
    RealTimeChunkingCfg,
    TemporalEnsembleCfg,
)

if typing.TYPE_CHECKING:
    from rrf.evaluation.vla.configs import ProtocolCfg


@dataclasses.dataclass
class Acting:
    """An episode, as far as its next actions depend on it."""

    observation: Observation  # of this episode alone
    generator: typing.Any = None  # torch.Generator of this episode, None for a greedy protocol
    steps: int = 0  # executed so far
    chunks: collections.deque[tuple[int, np.ndarray]] = dataclasses.field(
        default_factory=collections.deque
    )
    """What the rule remembers: chunks [H, A], each with the step in which it begins."""


class RecedingHorizon:
    """Executes the first actions of a chunk.

    Args:
        cfg: The rule.
        policy: Implements `rrf.policies.policy.Policy`.
        protocol: The protocol of the evaluation.
    """

    def __init__(self, cfg: ExecutionCfg, policy: typing.Any, protocol: "ProtocolCfg"):
        self._policy, self._protocol = policy, protocol

    def act(self, episodes: Sequence[Acting]) -> np.ndarray:
        """The next actions of all episodes, [B, E, A]."""
        return self._new_chunks(episodes)[:, : self._protocol.execute_steps]

    def _new_chunks(
        self,
        episodes: Sequence[Acting],
        rests: Sequence[np.ndarray] | None = None,
        num_frozen: int = 0,
    ) -> np.ndarray:
        """New chunks [B, H, A]; those that continue `rests`, each [K, A], if they are given."""
        greedy = self._protocol.greedy
        size, chunks = self._protocol.inference_batch if greedy else 1, []
        for start in range(0, len(episodes), size):
            part = episodes[start : start + size]
            observation = padded(join([episode.observation for episode in part]), size)
            options = {"generator": part[0].generator, "greedy": greedy}
            if rests is None:
                actions = self._policy.sample(observation, **options).actions
            else:
                running_bka = np.stack(rests[start : start + size])
                rows = np.minimum(np.arange(size), len(part) - 1)
                actions = self._policy.resume(observation, running_bka[rows], num_frozen, **options)
            chunks.append(actions[: len(part)])
        return np.concatenate(chunks)


class TemporalEnsemble(RecedingHorizon):
    """Executes the weighted mean of what all chunks of the episode say about a step."""

    def __init__(self, cfg: TemporalEnsembleCfg, policy: typing.Any, protocol: "ProtocolCfg"):
        super().__init__(cfg, policy, protocol)
        self._rate = cfg.rate

    def act(self, episodes: Sequence[Acting]) -> np.ndarray:
        for episode, chunk in zip(episodes, self._new_chunks(episodes), strict=True):
            episode.chunks.append((episode.steps, chunk))
            if len(episode.chunks) > len(chunk):
                episode.chunks.popleft()  # it is over
        means = [
            schedules.ensemble(schedules.predictions_of(e.steps, e.chunks), self._rate)
            for e in episodes
        ]
        return np.stack(means)[:, None]


class RealTimeChunking(RecedingHorizon):
    """Executes chunks that continue each other.

    A chunk is asked for when the running one has been executed for `execute_steps` steps. The
    answer comes `delay_steps` later. Until then the robot executes the running chunk, and the new
    one begins with these actions. Seen from the observation, it is therefore executed from its
    first action on.
    """

    def __init__(self, cfg: RealTimeChunkingCfg, policy: typing.Any, protocol: "ProtocolCfg"):
        super().__init__(cfg, policy, protocol)
        from rrf.policies.policy import ResumablePolicy

        if not isinstance(policy, ResumablePolicy):
            raise ValueError(f"{self._refusal}{type(policy).__name__} cannot continue a chunk")
        self._delay = cfg.delay_steps

    @property
    def _refusal(self) -> str:
        return f"protocol '{self._protocol.name}' executes by real-time chunking, but "

    def act(self, episodes: Sequence[Acting]) -> np.ndarray:
        rests = [self._rest_of_chunk(episode) for episode in episodes]
        for length in sorted({len(rest) for rest in rests}):  # a batch has rests of one length
            rows = [row for row, rest in enumerate(rests) if len(rest) == length]
            chosen = [episodes[row] for row in rows]
            for row, chunk in zip(
                rows, self._continued(chosen, [rests[row] for row in rows]), strict=True
            ):
                episodes[row].chunks = collections.deque([(episodes[row].steps, chunk)])
        return np.stack([e.chunks[0][1][: self._protocol.execute_steps] for e in episodes])

    def _rest_of_chunk(self, episode: Acting) -> np.ndarray:
        """What is left of an episode's running chunk, [K, A]."""
        if not episode.chunks:
            return np.empty((0, 0), np.float32)
        start, chunk = episode.chunks[0]
        return chunk[episode.steps - start :]

    def _continued(self, episodes: Sequence[Acting], rests: Sequence[np.ndarray]) -> np.ndarray:
        """Chunks that continue rests of one length, [B, H, A]."""
        if len(rests[0]) == 0:
            return self._new_chunks(episodes)
        frozen = schedules.num_frozen(self._delay, len(rests[0]))
        try:
            chunks = self._new_chunks(episodes, rests, frozen)
        except NotImplementedError as error:
            raise ValueError(f"{self._refusal}{error}") from error
        # Equal up to rounding; the robot executes these before the answer is there.
        chunks[:, :frozen] = [rest[:frozen] for rest in rests]
        return chunks
