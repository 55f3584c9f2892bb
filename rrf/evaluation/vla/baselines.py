"""Policies that have learned nothing. The success of a trained policy means something only if it
is higher than theirs.

Legend: B observations, H steps in an action chunk, A action dimension.
"""

import hashlib

import numpy as np

from rrf.data.schema import Observation
from rrf.policies.policy import Sample


class _Baseline:
    """Policies without a memory: a chunk does not depend on the one before."""

    chunk_length: int
    action_dim: int

    def sample(self, observation: Observation, generator=None, greedy: bool = False) -> Sample:
        raise NotImplementedError

    def resume(
        self,
        observation: Observation,
        running: np.ndarray,
        num_frozen: int,
        generator=None,
        greedy: bool = False,
    ) -> np.ndarray:
        """New chunks behind the frozen actions; see `rrf.policies.policy.ResumablePolicy`."""
        chunks = self.sample(observation).actions
        chunks[:, :num_frozen] = running[:, :num_frozen]
        return chunks


class RandomPolicy(_Baseline):
    """Uniform actions in [-1, 1]; a pure function of seed and observation, hence reproducible."""

    def __init__(self, chunk_length: int, action_dim: int, seed: int = 0):
        self.chunk_length = chunk_length
        self.action_dim = action_dim
        self.seed = seed

    def sample(self, observation: Observation, generator=None, greedy: bool = False) -> Sample:
        """Pseudo-random actions. `generator` and `greedy` have no effect."""
        actions = [self._draw(observation, row) for row in range(len(observation))]
        return Sample(np.stack(actions), None, {})

    def _draw(self, observation: Observation, row: int) -> np.ndarray:
        content = hashlib.sha256(observation.state[row].tobytes())
        for name in sorted(observation.images):
            content.update(observation.images[name][row].tobytes())
        rng = np.random.default_rng([self.seed, int.from_bytes(content.digest()[:8], "little")])
        return rng.uniform(-1, 1, (self.chunk_length, self.action_dim)).astype(np.float32)


class MeanActionPolicy(_Baseline):
    """Always the mean action of the training data."""

    def __init__(self, chunk_length: int, mean_action: np.ndarray):
        self.chunk_length = chunk_length
        self.action_dim = len(mean_action)
        self.mean_action = np.asarray(mean_action, np.float32)

    def sample(self, observation: Observation, generator=None, greedy: bool = False) -> Sample:
        """The same action for every step and observation."""
        shape = (len(observation), self.chunk_length, self.action_dim)
        return Sample(np.broadcast_to(self.mean_action, shape).copy(), None, {})
