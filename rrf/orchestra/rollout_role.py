"""The rollout role: chooses actions with its own copy of the policy.

Its choice for an episode depends only on the weights, the observation and the episode's own random
generator. It does not depend on the other episodes in a batch. For this, all batches have the same
size (padded if necessary), because the rounding of matrix products depends on the size, and every
row draws from its own generator.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from rrf.data.schema import Observation
from rrf.envs.observations import padded, rows_of
from rrf.policies.policy import Policy, Sample
from rrf.policies.precision import Precision, autocast


class RolloutRole:
    """Acts with the weights that were loaded last."""

    sync_bytes = 0  # of the weights of the last `load`, as they were sent elsewhere

    def __init__(
        self,
        policy: Policy,
        batch_rows: int = 16,
        precision: Precision = "fp32",
        sees_end: bool = False,
        sees_success: bool = False,
    ):
        """
        Args:
            policy: In evaluation mode. `load` changes its weights.
            batch_rows: Observations per forward pass. The results depend on it (rounding).
            precision: fp32, or bf16 to compute in bfloat16.
            sees_end: Whether a critic elsewhere bootstraps from the last observation of truncated
                episodes; the policy's own critic always does.
            sees_success: Whether the critic also bootstraps from that of solved episodes.
        """
        self.policy = policy
        self.sees_end = sees_end or policy.num_values > 0
        self.sees_success = sees_success
        self.batch_rows = batch_rows
        self._precision: Precision = precision
        self.version = -1  # version of the weights; set by `load`
        self.num_passes = 0
        self.inference_s = 0.0  # spent for choosing: of this thread's core, or with a GPU wall time

    def load(
        self, weights: Mapping[str, torch.Tensor], version: int, noise_factor: float = 1.0
    ) -> None:
        """Load weights, by name, and set the factor on the randomness of actions."""
        self.policy.set_noise_factor(noise_factor)
        assert isinstance(self.policy, nn.Module)
        self.policy.load_state_dict(dict(weights))
        self.version = version

    def act(
        self,
        observation: Observation,
        generators: Sequence[torch.Generator] | None,
    ) -> Sample:
        """Choose chunks for all rows.

        With one generator per row, chunks are sampled; without generators, they are the policy's
        mode.
        """
        begin, parts = self._clock_s(), []
        for start in range(0, len(observation), self.batch_rows):
            rows = range(start, min(start + self.batch_rows, len(observation)))
            batch = padded(rows_of(observation, rows), self.batch_rows)
            streams = None
            if generators is not None:
                unused = [torch.Generator() for _ in range(self.batch_rows - len(rows))]
                streams = [*(generators[row] for row in rows), *unused]
            with autocast(self.policy, self._precision):
                sample = self.policy.sample(batch, streams, greedy=generators is None)
            parts.append(sample.first(len(rows)))
        chosen = _join(parts)
        self.num_passes += len(parts)
        self.inference_s += self._clock_s() - begin
        return chosen

    def _clock_s(self) -> float:
        assert isinstance(self.policy, nn.Module)
        is_here = next(self.policy.parameters()).device.type == "cpu"
        return time.thread_time() if is_here else time.perf_counter()


def _join(parts: Sequence[Sample]) -> Sample:
    """All rows, on the CPU."""
    log_probs = [part.log_prob for part in parts if part.log_prob is not None]
    values = [part.value for part in parts if part.value is not None]
    names = parts[0].replay
    return Sample(
        actions=np.concatenate([part.actions for part in parts]),
        log_prob=torch.cat(log_probs).float().cpu() if log_probs else None,
        replay={name: torch.cat([part.replay[name] for part in parts]).cpu() for name in names},
        value=torch.cat(values).float().cpu() if values else None,
    )
