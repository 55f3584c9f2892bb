"""The discriminator of adversarial motion priors (arXiv:2104.02180), its losses and its rewards.

lsgan, the paper's equations 5 to 8:

    loss    E_M (D - 1)^2 + E_pi (D + 1)^2 + w_gp / 2 E_M ||grad D||^2
    reward  max(0, 1 - (D - 1)^2 / 4)

bce, as in MimicKit:

    loss    (E_M softplus(-D) + E_pi softplus(D)) / 2 + w_gp / 2 (E_M + E_pi) ||grad D||^2
    reward  -log(max(1 - sigmoid(D), 1e-4))

To both is added w_logit times the sum of the squared weights of the output layer. The gradient is
that with respect to normalised transitions.

Legend: B transitions, D observation width.
"""

import typing

import torch
from torch import nn
from torch.nn.functional import softplus

from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.networks.configs import without_dropout
from rrf.policies.control.normalizer import EmpiricalNormalizer

_LEAST = 1e-4  # of 1 - sigmoid(D)


class Discriminator(nn.Module):
    """Says of transitions how much they look like the reference motions."""

    def __init__(self, cfg: AMPCfg, width: int):
        super().__init__()
        self.cfg = cfg
        self.network = without_dropout(cfg.discriminator_cfg).build(2 * width, 1)
        self.normalizer = EmpiricalNormalizer(width)

    def normalized(self, pairs_b2d: torch.Tensor) -> torch.Tensor:
        """Transitions (two frames each) as the network reads them, [B, 2 D]."""
        limit = self.cfg.observation_clip
        return self.normalizer(pairs_b2d).clamp(-limit, limit).flatten(1)

    def forward(self, x_bi: torch.Tensor) -> torch.Tensor:
        """The logits of normalised transitions, [B]."""
        return self.network(x_bi).squeeze(-1)

    def rewards(self, x_bi: torch.Tensor) -> torch.Tensor:
        """The style rewards of normalised transitions, [B]."""
        return REWARDS[self.cfg.form](self(x_bi))

    def loss(
        self, real_bi: torch.Tensor, fake_bi: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss on normalised transitions, and metrics.

        Args:
            real_bi: Of the reference motions.
            fake_bi: Of the policy.
        """
        cfg = self.cfg
        real_bi = real_bi.requires_grad_()
        fake_bi = fake_bi.requires_grad_(cfg.form == "bce")
        real, fake = self(real_bi), self(fake_bi)
        penalty = squared_gradients(real, real_bi).mean() / 2
        if cfg.form == "bce":
            penalty = penalty + squared_gradients(fake, fake_bi).mean() / 2
        output = self.network.layers[self.network.output].weight
        loss = LOSSES[cfg.form](real, fake) + cfg.gradient_penalty * penalty
        loss = loss + cfg.logit_penalty * output.square().sum()
        return loss, {
            "loss/discriminator": loss.detach(),
            "amp/gradient_penalty": penalty.detach(),
            "amp/accuracy_reference": (real > 0).float().mean(),
            "amp/accuracy_policy": (fake < 0).float().mean(),
        }


def lsgan_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    return (real - 1).square().mean() + (fake + 1).square().mean()


def bce_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    return (softplus(-real).mean() + softplus(fake).mean()) / 2


def lsgan_reward(logits: torch.Tensor) -> torch.Tensor:
    return (1 - (logits - 1).square() / 4).clamp(min=0)


def bce_reward(logits: torch.Tensor) -> torch.Tensor:
    return -(1 - logits.sigmoid()).clamp(min=_LEAST).log()


def squared_gradients(logits_b: torch.Tensor, x_bi: torch.Tensor) -> torch.Tensor:
    """||dD/dx||^2 of each transition, [B], which can be differentiated again."""
    (gradients,) = torch.autograd.grad(logits_b.sum(), x_bi, create_graph=True)
    return gradients.square().sum(-1)


_Loss = typing.Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Reward = typing.Callable[[torch.Tensor], torch.Tensor]
LOSSES: dict[str, _Loss] = {"lsgan": lsgan_loss, "bce": bce_loss}
REWARDS: dict[str, _Reward] = {"lsgan": lsgan_reward, "bce": bce_reward}
