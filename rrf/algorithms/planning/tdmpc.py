"""TD-MPC, arXiv:2203.04955: the predecessor of TD-MPC2, as a variant of it.

It differs in the model, which has plain numbers in place of SimNorm and bins, and a policy with
fixed noise, and in the losses: latent states are compared with those of a slow copy of the encoder,
and the policy maximises the lower of two critics, without a scale and without entropy.

    2 |z_{t+1} - h'(s_{t+1})|^2 + 0.5 (R(z_t, a_t) - r_t)^2 + 0.1 sum_k (Q_k(z_t, a_t) - y_t)^2

Left out: prioritised replay, and the schedules that lengthen the horizon and shrink the noise.
"""

from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.planning.tdmpc2 import TDMPC2, Noise, Sequences, frozen


class TDMPC(TDMPC2):
    """Metrics are those of TD-MPC2."""

    def build(self) -> None:
        super().build()
        self.target_encoder = frozen(self.model.encoder)

    @torch.no_grad()
    def targets(self, batch: Sequences, noise: Noise) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TDMPC2.targets`. The slow encoder only gives the latent states to be predicted."""
        _, of_critics = super().targets(batch, noise)
        with self.precision():
            seen = self.model.normalized(batch.observations[1:])
            return self.target_encoder(seen), of_critics

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield from super().slow_copies()
        yield self.target_encoder, self.model.encoder
