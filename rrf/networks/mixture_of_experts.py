"""A mixture of experts, arXiv:1701.06538, with the loss that balances it, arXiv:2101.03961.

    y(x) = sum_e g_e(x) y_e(x),  g = softmax of the gate's k largest logits, 0 for the others
    L = E sum_e f_e P_e

f_e is the share of inputs that the gate sends to expert e (each input counts for k experts), P_e
the mean probability that the gate gives it. L is 1 where all experts get the same. Every expert is
computed for every input, which for networks this small costs less than sorting the inputs.

Legend: B batch, I input width, O output width, E experts, k active ones.
"""

import torch
from torch import nn

from rrf.networks.block_configs import MixtureOfExpertsCfg
from rrf.networks.mlp import MLP


class MixtureOfExperts(nn.Module):
    """Maps [..., I] to [..., O]."""

    def __init__(self, cfg: MixtureOfExpertsCfg, in_features: int, out_features: int):
        super().__init__()
        self.num_active = cfg.num_active
        self.gate = nn.Linear(in_features, cfg.num_experts)
        experts = [MLP(cfg, in_features, out_features) for _ in range(cfg.num_experts)]
        self.experts = nn.ModuleList(experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], -2)
        return (self.weights(x).unsqueeze(-1) * outputs).sum(-2)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The weights of the experts, [..., E]; k of them are above 0 and sum to 1."""
        logits = self.gate(x)
        largest, indices = logits.topk(self.num_active, -1)
        return torch.zeros_like(logits).scatter(-1, indices, largest.softmax(-1))

    def auxiliary_loss(
        self, x_bi: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss that balances the experts, and metrics to log."""
        probabilities = self.gate(x_bi).softmax(-1)
        shares = (self.weights(x_bi) > 0).float().mean(0) / self.num_active
        loss = len(self.experts) * (shares * probabilities.mean(0)).sum()
        return loss, {"loss/balance": loss.detach(), "experts/largest_share": shares.max()}
