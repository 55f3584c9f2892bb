"""The objectives of off-policy and offline algorithms, as pure functions.

SAC arXiv:1812.05905, DSAC arXiv:2001.02811, DSAC-T arXiv:2310.05858, IQL arXiv:2110.06169, CQL
arXiv:2006.04779, TD3+BC arXiv:2106.06860.

Legend: K critics, B batch, M proposed actions.
"""

import math

import torch
from torch.nn import functional

HUBER_DELTA = 50.0  # DSAC-T: only for very large errors is the loss linear
_SMALL_VARIANCE = 0.1  # DSAC-T: added to a divisor, so that a quotient stays bounded


def soft_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    next_values: torch.Tensor,
    next_log_prob: torch.Tensor,
    alpha: torch.Tensor,
) -> torch.Tensor:
    """r + discount (V(s') - alpha log p(a'|s')), [B]; the discount is 0 after a termination."""
    return rewards + discounts * (next_values - alpha * next_log_prob)


def critic_loss(q_kb: torch.Tensor, target_b: torch.Tensor) -> torch.Tensor:
    """Half the squared error: the mean over the batch, summed over critics."""
    return 0.5 * (q_kb - target_b).square().mean(-1).sum()


def policy_loss(log_prob: torch.Tensor, q_kb: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """E[alpha log p(a|s) - min_k Q_k(s, a)]."""
    return (alpha * log_prob - q_kb.amin(0)).mean()


def alpha_loss(
    log_alpha: torch.Tensor, log_prob: torch.Tensor, target_entropy: float
) -> torch.Tensor:
    """-log(alpha) E[log p(a|s) + target]; its gradient flows into alpha, not into the policy."""
    return -log_alpha * (log_prob.detach() + target_entropy).mean()


def distributional_loss(
    mean_kb: torch.Tensor,
    std_kb: torch.Tensor,
    sampled_target_b: torch.Tensor,
    td_bound: float,
) -> torch.Tensor:
    """DSAC's critic loss, summed over critics.

    It is the negative log-likelihood of sampled returns under N(mean, std), without its constant.
    The mean learns from the full error, the standard deviation from the error clipped to
    `td_bound`.
    """
    bounded = mean_kb + (sampled_target_b - mean_kb).clamp(-td_bound, td_bound)
    of_mean = (mean_kb - sampled_target_b).square() / (2 * std_kb.detach().square())
    of_std = (mean_kb - bounded).detach().square() / (2 * std_kb.square()) + std_kb.log()
    return (of_mean + of_std).mean(-1).sum()


def refined_distributional_loss(
    mean_kb: torch.Tensor,
    std_kb: torch.Tensor,
    target_b: torch.Tensor,
    sampled_target_b: torch.Tensor,
    running_std_k: torch.Tensor,
    bound_factor: float,
) -> torch.Tensor:
    """DSAC-T's critic loss, summed over critics.

    The mean learns from the expected target. The standard deviation learns from the sampled target,
    clipped to `bound_factor` running standard deviations from the mean. Both terms are weighted by
    running_std^2 / variance, so that the step does not depend on the scale of rewards.
    """
    running_k1 = running_std_k.unsqueeze(-1)
    std = std_kb.detach()
    bound = bound_factor * running_k1
    fixed_mean = mean_kb.detach()
    sampled_kb = fixed_mean + (sampled_target_b - fixed_mean).clamp(-bound, bound)
    weight = (running_k1.square() / (std.square() + _SMALL_VARIANCE)).clamp(0.1, 10.0)
    of_mean = _huber(mean_kb, target_b.expand_as(mean_kb))
    of_std = std_kb * (std.square() - _huber(fixed_mean, sampled_kb)) / (std + _SMALL_VARIANCE)
    return (weight * (of_mean + of_std)).mean(-1).sum()


def _huber(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.huber_loss(x, y, delta=HUBER_DELTA, reduction="none")


def expectile_loss(errors: torch.Tensor, expectile: float) -> torch.Tensor:
    """E[|expectile - 1(u < 0)| u^2] of errors u = target - prediction; a 0-d tensor."""
    weights = torch.where(errors < 0, 1 - expectile, expectile)
    return (weights * errors.square()).mean()


def advantage_weights(advantages: torch.Tensor, beta: float, limit: float) -> torch.Tensor:
    """min(exp(beta A), limit)."""
    return (beta * advantages).exp().clamp(max=limit)


def soft_maximum(values_kbm: torch.Tensor, temperature: float) -> torch.Tensor:
    """T logsumexp(values / T) over the proposed actions, [K, B]."""
    return temperature * torch.logsumexp(values_kbm / temperature, -1)


def uniform_log_density(num_actions: int, limit: float) -> float:
    """The log-density of uniformly random actions of so many dimensions within +-limit."""
    return -num_actions * math.log(2 * limit)


def value_against_imitation(
    values_b: torch.Tensor, imitation: torch.Tensor, alpha: float
) -> torch.Tensor:
    """-alpha E[Q] / E[|Q|] + imitation, where the divisor has no gradient."""
    return imitation - alpha * values_b.mean() / values_b.detach().abs().mean()
