"""A probabilistic ensemble of networks, PETS arXiv:1805.12114.

    log var = bounded softly by learned limits
    loss    = sum_k mean((mean_k - y)^2 / var_k + log var_k) + 0.01 (sum max - sum min log var)

All members are one batched matrix product per layer. Inputs and targets are standardised inside;
PETS standardises inputs only, so that the smallest standard deviation it can predict (e^-5) is too
coarse for slow states. (Loss: appendix A.1 of PETS, appendix C of MBPO, arXiv:1906.08253.)

Legend: K members, B batch, I inputs, D predicted numbers.
"""

import torch
from torch import nn
from torch.nn import functional

from rrf.algorithms.model_based.configs import EnsembleCfg
from rrf.data.dataset.floors import FloorsCfg
from rrf.networks.batched_mlp import BatchedLinear, BatchedMLP

_FLOORS = FloorsCfg()


def softly_bounded(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """`x`, bent smoothly such that it stays (almost) between `low` and `high`."""
    x = high - functional.softplus(high - x)
    return low + functional.softplus(x - low)


def gaussian_nll(
    mean_kbd: torch.Tensor, log_var_kbd: torch.Tensor, target_kbd: torch.Tensor
) -> torch.Tensor:
    """(mean - y)^2 / var + log var, [K, B, D]: twice the negative log-likelihood, no constant."""
    return (mean_kbd - target_kbd).square() * (-log_var_kbd).exp() + log_var_kbd


def ensemble_loss(
    nll_kbd: torch.Tensor, min_log_var: torch.Tensor, max_log_var: torch.Tensor
) -> torch.Tensor:
    """The members' mean losses, summed, and 0.01 times the width of the bounds of log var."""
    return nll_kbd.mean((1, 2)).sum() + 0.01 * (max_log_var.sum() - min_log_var.sum())


def elites(errors_k: torch.Tensor, num_elites: int) -> torch.Tensor:
    """Indices of the members with the lowest errors, int64 [E], the best first."""
    return errors_k.argsort()[:num_elites]


class Standardizer(nn.Module):
    """(x - mean) / std of the rows that it was last fitted to.

    Inputs that hardly change are divided by a floor (`rrf.data.dataset.floors`), because a state
    just beside the others must not become a huge number. A constant input only loses its mean.
    Targets are not divided by a floor, as what is predicted is multiplied by their std; that of a
    constant one is the floor.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))

    @torch.no_grad()
    def fit(self, rows_bd: torch.Tensor, is_target: bool = False) -> None:
        """Take mean and standard deviation of `rows_bd`."""
        variance, mean = torch.var_mean(rows_bd, 0, unbiased=False)
        std = variance.sqrt()
        self.mean.copy_(mean)
        # Rounding leaves constant columns a tiny deviation, by which nothing should be divided.
        is_constant = std <= 1e-6 * mean.abs().clamp(min=1e-6)
        if is_target:
            self.std.copy_(torch.where(is_constant, _FLOORS.absolute, std))
            return
        least = (_FLOORS.relative * rows_bd.abs().amax(0)).clamp(min=_FLOORS.absolute)
        self.std.copy_(torch.where(is_constant, 1.0, torch.maximum(std, least)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std

    def inverse(self, x: torch.Tensor) -> torch.Tensor:
        """What `forward` would map to `x`."""
        return x * self.std + self.mean


class Ensemble(nn.Module):
    """K Gaussians of D numbers, and if `has_flag` K logits of an event."""

    def __init__(self, cfg: EnsembleCfg, num_inputs: int, num_outputs: int, has_flag: bool = False):
        super().__init__()
        self.num_outputs, self.has_flag = num_outputs, has_flag
        width = 2 * num_outputs + has_flag
        self.network = BatchedMLP(cfg.network_cfg, cfg.num_members, num_inputs, width)
        self.max_log_var = nn.Parameter(torch.full((1, num_outputs), 0.5))
        self.min_log_var = nn.Parameter(torch.full((1, num_outputs), -10.0))
        self.inputs, self.targets = Standardizer(num_inputs), Standardizer(num_outputs)
        self.linear = [layer for layer in self.network.layers if isinstance(layer, BatchedLinear)]
        self.decays = cfg.weight_decays

    def forward(
        self, x_kbi: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Mean and log variance, each [K, B, D], and the flag's logits [K, B], if there is one.

        Both are of standardised numbers. `x_kbi` may be [B, I], if the members share it.
        """
        outputs = self.network(self.inputs(x_kbi))
        mean, log_var, flag = outputs.split([self.num_outputs, self.num_outputs, self.has_flag], -1)
        log_var = softly_bounded(log_var, self.min_log_var, self.max_log_var)
        return mean, log_var, flag.squeeze(-1) if self.has_flag else None

    def loss(
        self, x_kbi: torch.Tensor, target_kbd: torch.Tensor, flag_kb: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The loss without weight decay, a scalar; `target_kbd` is not standardised."""
        mean, log_var, logits = self(x_kbi)
        nll = gaussian_nll(mean, log_var, self.targets(target_kbd))
        loss = ensemble_loss(nll, self.min_log_var, self.max_log_var)
        if logits is not None:
            loss = loss + _flag_losses(logits, flag_kb).sum()
        return loss

    def parameter_groups(self) -> list[dict]:
        """All parameters for an optimizer; the weights of each layer with their weight decay."""
        weights = [layer.weight for layer in self.linear]
        groups: list[dict] = [
            {"params": [weight], "weight_decay": decay}
            for weight, decay in zip(weights, self.decays, strict=True)
        ]
        decayed = set(weights)
        rest = [parameter for parameter in self.parameters() if parameter not in decayed]
        return [*groups, {"params": rest, "weight_decay": 0.0}]

    def errors(
        self, x_bi: torch.Tensor, target_bd: torch.Tensor, flag_b: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Each member's mean squared error of standardised numbers, [K]; with a flag, its loss is
        added."""
        mean, _, logits = self(x_bi)
        errors = (mean - self.targets(target_bd)).square().mean((1, 2))
        if logits is not None:
            errors = errors + _flag_losses(logits, flag_b)
        return errors


def _flag_losses(logits_kb: torch.Tensor, flags: torch.Tensor | None) -> torch.Tensor:
    """Each member's cross-entropy, [K]; `flags` are [K, B] or [B]."""
    assert flags is not None, "an ensemble with a flag needs it to learn"
    wanted = flags.expand_as(logits_kb)
    losses = functional.binary_cross_entropy_with_logits(logits_kb, wanted, reduction="none")
    return losses.mean(1)
