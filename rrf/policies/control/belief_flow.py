"""Belief Flow: a recurrent belief of two rates.

At every step the belief flows with the fast observation and the action before it (an Euler step):

    h- = h + dt f(h, o_fast, a)

Where a slow observation arrives (m = 1), it is corrected:

    h = h- + m g(h-, o_slow)

Flow and correction are gated, f(h, x) = GRU_f(x, h) - h and g(h, x) = GRU_g(x, h) - h, as in
GRU-ODE-Bayes (arXiv:1905.12374). So the belief stays within (-1, 1), however long an episode is.

The optional consistency loss rolls the belief forward on its own predictions of o_fast. It compares
the result with the belief of a slow copy of the encoder, which saw the real observations.

Legend: T time, B batch or environments, J steps rolled forward, D belief.
"""

import torch
from torch import nn

from rrf.policies.control.belief_configs import BeliefFlowCfg
from rrf.policies.control.predictive_encoder import PredictiveEncoder, Sensed, mean_where


class BeliefFlow(PredictiveEncoder):
    """Predicts at every step, and corrects where a slow observation arrives."""

    cfg: BeliefFlowCfg

    def __init__(self, cfg: BeliefFlowCfg, in_features: int):
        super().__init__(cfg, in_features)
        num_fast, num_slow, num_actions, *_ = self.sizes
        self.flow = nn.GRUCell(num_fast + num_actions, self.width)
        self.correction = nn.GRUCell(num_slow, self.width)
        self.needs_target = cfg.consistency_coef > 0

    def advance(self, sensed: Sensed, belief_bd: torch.Tensor) -> torch.Tensor:
        predicted = self.flowed(sensed.fast, sensed.action, belief_bd)
        if not sensed.is_seen.any():
            return predicted
        corrected = self.correction(sensed.slow, predicted)
        return torch.where(sensed.is_seen, corrected, predicted)

    def flowed(
        self, fast_bf: torch.Tensor, action_ba: torch.Tensor, belief_bd: torch.Tensor
    ) -> torch.Tensor:
        """h-, the belief [B, D] after one Euler step of the flow."""
        end = self.flow(torch.cat([fast_bf, action_ba], -1), belief_bd)
        return end if self.cfg.dt == 1 else torch.lerp(belief_bd, end, self.cfg.dt)

    def loss(self, x_tbo, beliefs_tbd, starts_tb, targets_tbd=None):
        loss, metrics = super().loss(x_tbo, beliefs_tbd, starts_tb)
        if not self.needs_target:
            return loss, metrics
        assert targets_tbd is not None, "the consistency loss needs the beliefs of a slow copy"
        of_consistency = self.consistency(x_tbo, beliefs_tbd, starts_tb, targets_tbd)
        metrics["consistency"] = of_consistency.detach()
        return loss + self.cfg.consistency_coef * of_consistency, metrics

    def consistency(
        self,
        x_tbo: torch.Tensor,
        beliefs_tbd: torch.Tensor,
        starts_tb: torch.Tensor,
        targets_tbd: torch.Tensor,
    ) -> torch.Tensor:
        """The mean squared distance of beliefs that were rolled forward for 1 to J steps from the
        targets; a belief is not rolled over the end of its episode."""
        num_steps = min(self.cfg.consistency_steps, len(x_tbo) - 1)
        num_starts = len(x_tbo) - num_steps
        actions = self.sensed(x_tbo).action
        belief = beliefs_tbd[:num_starts].flatten(0, 1)
        runs = torch.ones_like(starts_tb[:num_starts])
        total = beliefs_tbd.new_zeros(())
        for ahead in range(1, num_steps + 1):
            part = slice(ahead, num_starts + ahead)
            action = actions[part].flatten(0, 1)
            belief = self.flowed(self.predicted_fast(belief, action)[0], action, belief)
            runs = runs & ~starts_tb[part]
            error = (belief - targets_tbd[part].flatten(0, 1)).square()
            total = total + mean_where(error, runs.flatten().unsqueeze(-1))
        return total / max(num_steps, 1)
