"""A discriminator: it learns to tell an expert's transitions from a policy's.

    L = -E_expert[log D] - E_policy[log(1 - D)] + w E[(||grad f(x)|| - 1)^2],   D = sigmoid(f)

x lies at random between a transition of the expert and one of the policy (arXiv:1704.00028). Inputs
are normalised with the statistics of all transitions so far, the expert's and the policy's.

Legend: B batch, I input width, M transitions of the expert, S of the policy.
"""

import torch
from torch import nn
from torch.nn import functional

from rrf.algorithms import distributed
from rrf.algorithms.imitation.configs import DiscriminatorCfg
from rrf.algorithms.off_policy.learner import Means
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.networks.configs import without_dropout
from rrf.policies.control.normalizer import EmpiricalNormalizer


class Discriminator(nn.Module):
    """Maps inputs [B, I] to logits [B], which are positive where it takes them for the expert's."""

    def __init__(self, cfg: DiscriminatorCfg, in_features: int):
        super().__init__()
        self.normalizer = EmpiricalNormalizer(in_features)
        self.network = without_dropout(cfg.network_cfg).build(in_features, 1)

    def forward(self, x_bi: torch.Tensor) -> torch.Tensor:
        return self.network(self.normalizer(x_bi)).squeeze(-1)


def cross_entropy(expert_b: torch.Tensor, policy_b: torch.Tensor) -> torch.Tensor:
    """-E[log D] of the expert's logits minus E[log(1 - D)] of the policy's, a scalar."""
    return functional.softplus(-expert_b).mean() + functional.softplus(policy_b).mean()


def gradient_penalty(network: nn.Module, x_bi: torch.Tensor, norm: float = 1.0) -> torch.Tensor:
    """E[(||df / dx|| - norm)^2] of a network with one output, a scalar."""
    x_bi = x_bi.detach().requires_grad_()
    (gradients,) = torch.autograd.grad(network(x_bi).sum(), x_bi, create_graph=True)
    return (gradients.norm(dim=-1) - norm).square().mean()


def between(
    expert_bi: torch.Tensor, policy_bi: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """A random point on the line between each pair of rows, [B, I]."""
    weights = torch.empty_like(expert_bi[:, :1]).uniform_(generator=generator)
    return torch.lerp(policy_bi, expert_bi, weights)


class DiscriminatorLearner:
    """Trains a discriminator with Adam."""

    def __init__(self, cfg: DiscriminatorCfg, module: Discriminator, generator: torch.Generator):
        self.cfg, self.module, self.generator = cfg, module, generator
        self.optimizer = torch.optim.Adam(
            module.network.parameters(), lr=cfg.learning_rate, fused=True
        )

    def learn(self, expert_mi: torch.Tensor, policy_si: torch.Tensor) -> dict[str, torch.Tensor]:
        """`num_updates` gradient steps; returns their mean metrics, 0-d tensors."""
        for rows in (expert_mi, policy_si):
            self.module.normalizer.update(rows)
        expert_mi, policy_si = map(self.module.normalizer, (expert_mi, policy_si))
        means = Means()
        for _ in range(self.cfg.num_updates):
            means.add(self._step(self._drawn(expert_mi), self._drawn(policy_si)))
        return means.found()

    def _drawn(self, rows: torch.Tensor) -> torch.Tensor:
        count = (self.cfg.batch_size,)
        return rows[torch.randint(len(rows), count, generator=self.generator, device=rows.device)]

    def _step(self, expert_bi: torch.Tensor, policy_bi: torch.Tensor) -> dict[str, torch.Tensor]:
        network, weight = self.module.network, self.cfg.gradient_penalty_coef
        expert_b, policy_b = network(torch.cat([expert_bi, policy_bi])).squeeze(-1).chunk(2)
        loss = cross_entropy(expert_b, policy_b)
        metrics = {
            "loss/discriminator": loss.detach(),
            "discriminator/expert_accuracy": (expert_b > 0).float().mean(),
            "discriminator/policy_accuracy": (policy_b < 0).float().mean(),
        }
        if weight:
            points = between(expert_bi, policy_bi, self.generator)
            penalty = gradient_penalty(network, points)
            metrics["loss/gradient_penalty"] = penalty.detach()
            loss = loss + weight * penalty
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        distributed.average_gradients(network)
        self.optimizer.step()
        return metrics

    def slow_down(self, slowness: float) -> None:
        """Set the learning rate to this share of the config's."""
        self.optimizer.param_groups[0]["lr"] = slowness * self.cfg.learning_rate

    def state(self) -> dict[str, torch.Tensor]:
        """Named tensors that `load_state` needs."""
        packed = optimizer_tensors(self.optimizer, self.module.network)
        tensors = {f"module/{key}": value for key, value in self.module.state_dict().items()}
        return tensors | {f"optimizer/{key}": value for key, value in packed.items()}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `state` returned."""
        self.module.load_state_dict(beneath(tensors, "module/"))
        restore_optimizer(self.optimizer, self.module.network, beneath(tensors, "optimizer/"))
