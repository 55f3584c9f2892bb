"""Recurrent SAC whose encoders also learn to predict what their sensors will show.

Actor and critics each have a `PredictiveEncoder`, e.g. `BeliefFlow`. The loss of the encoder's
predictions along the sampled sequences is added to the loss of the network that it belongs to. So
the gradients of the policy, of the critics and of the predictions all flow into the belief.

Legend: T time, B sequences, D feature width.
"""

import typing
from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.off_policy.sac import Noise
from rrf.algorithms.off_policy.sac_seq import SACSeq, SequenceBatch
from rrf.policies.control.predictive_encoder import PredictiveEncoder


class SACBelief(SACSeq):
    """A second level of inheritance, because only the loss of the encoders is added to SACSeq.

    Further metrics, for the actor's encoder: belief/slow_nll, belief/fast_nll, belief/slow_mse,
    belief/hold_mse; see `PredictiveEncoder.loss`.
    """

    encoder_class = PredictiveEncoder
    encoder_cfgs = "BeliefFlowCfg or components.GRUDCfg"

    def build(self) -> None:
        super().build()
        self.target_actor: typing.Any = None
        if self.policy.actor.memory.needs_target:
            self.target_actor = self.slow_copy(self.policy.actor)
        self._losses: dict[str, torch.Tensor] = {}
        self._metrics: dict[str, torch.Tensor] = {}

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield from super().slow_copies()
        if self.target_actor is not None:
            yield self.target_actor, self.policy.actor

    def learn(self, batch: SequenceBatch, noise: Noise) -> dict[str, torch.Tensor]:
        metrics = super().learn(batch, noise)
        of_encoder, self._metrics = self._metrics, {}
        return metrics | of_encoder

    def unrolled(
        self,
        name: str,
        network: typing.Any,
        x_tbo: torch.Tensor,
        now_tbd: torch.Tensor,
        memory: torch.Tensor | None,
        starts_tb: torch.Tensor,
    ) -> None:
        """Keep the loss of the predictions for `backward`."""
        if not torch.is_grad_enabled():
            return
        encoder, targets = network.memory, None
        beliefs = now_tbd[..., : encoder.width]
        if encoder.needs_target:
            slow = self.target_actor if name == "actor" else self.target_critic
            with torch.no_grad():
                targets = slow.unroll(x_tbo, None, memory, starts_tb)[0][..., : encoder.width]
        x = network.normalized(x_tbo)
        self._losses[name], metrics = encoder.loss(x, beliefs, starts_tb, targets)
        if name == "actor":
            self._metrics = {f"belief/{key}": value for key, value in metrics.items()}

    def backward(self, loss: torch.Tensor, name: str) -> None:
        """See `OffPolicyLearner.backward`. Adds the loss of the network's encoder."""
        if name in self._losses:
            loss = loss + self._losses.pop(name)
        super().backward(loss, name)
