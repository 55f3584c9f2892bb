"""Losses of policy-gradient updates: pure functions, elementwise until `aggregate` or `row_means`.

* Clipped surrogate of PPO (arXiv:1707.06347, eq. 7) with separate bounds below and above
  (DAPO, arXiv:2503.14476), the dual clip for negative advantages (arXiv:1912.09729, eq. 5), and
  RLinf's bounds on the log-ratio.
* Clipped value loss with a Huber error. Explained variance from sums, which add up over minibatches
  and processes.
* KL penalties to a reference policy, with gradient, and KL estimates k1, k2, k3 as named in
  J. Schulman, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html, 2020).
* The decoupled surrogate of asynchronous PPO (AReaL, arXiv:2505.24298, eq. 5), for episodes that
  older weights played.

Legend: N samples (one action chunk each), H steps in an action chunk, A action dimension,
L tokens. "..." is any shape; it depends on the level of the log-probabilities.
"""

import typing

import torch
from torch.nn import functional

LogProbLevel = typing.Literal["token", "action", "chunk"]
KlKind = typing.Literal["k1", "k2", "k3", "abs"]


class Surrogate(typing.NamedTuple):
    """The elementwise policy loss and quantities to log. Only `loss` has a gradient."""

    loss: torch.Tensor  # float32 [...]
    ratio: torch.Tensor  # float32 [...]
    log_ratio: torch.Tensor  # float32 [...]
    clipped_ratio: torch.Tensor  # float32 [...]
    is_clipped: torch.Tensor  # bool [...]
    is_dual_clipped: torch.Tensor  # bool [...]


class DecoupledSurrogate(typing.NamedTuple):
    """A surrogate around proximal weights whose loss is corrected for who acted."""

    surrogate: Surrogate  # its loss is weighted; its ratio is that to the proximal policy
    weight: torch.Tensor  # float32 [...], proximal policy / policy that acted, without gradient
    is_kept: torch.Tensor  # bool [...], False where the weight is above its limit


class ValueLoss(typing.NamedTuple):
    """The elementwise value loss, and where the value moved further than the clip range."""

    loss: torch.Tensor  # float32 [...]
    is_clipped: torch.Tensor  # bool [...]


def reduce_log_probs(
    log_probs_nl: torch.Tensor, action_dim: int, level: LogProbLevel
) -> torch.Tensor:
    """Log-probabilities at a level: token [N, H, A], action [N, H] or chunk [N], from [N, H * A].

    Given the observation, the tokens of a chunk are independent, so their log-probabilities add up.
    """
    log_probs_nha = log_probs_nl.unflatten(1, (-1, action_dim))
    match level:
        case "token":
            return log_probs_nha
        case "action":
            return log_probs_nha.sum(-1)
        case "chunk":
            return log_probs_nha.sum((-2, -1))
    raise ValueError(f"log-prob level {level!r}; choose one of {typing.get_args(LogProbLevel)}")


def align_to_log_probs(values_nh: torch.Tensor, level: LogProbLevel) -> torch.Tensor:
    """Advantages, masks or weights [N, H or 1] in a shape that broadcasts to log-probs of `level`.

    Raises:
        ValueError: For one entry per action at chunk level, where a chunk has a single ratio.
    """
    match level:
        case "token":
            return values_nh.unsqueeze(-1)
        case "action":
            return values_nh
        case "chunk" if values_nh.shape[1] == 1:
            return values_nh.squeeze(1)
        case "chunk":
            raise ValueError(
                "chunk-level log-probs need one advantage per chunk, [N, 1], got "
                f"{list(values_nh.shape)}; use chunk-level rewards or action-level log-probs"
            )
    raise ValueError(f"log-prob level {level!r}; choose one of {typing.get_args(LogProbLevel)}")


def clipped_surrogate(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    log_ratio_range: tuple[float | None, float | None] = (None, None),
) -> Surrogate:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) with r = exp(log_prob - old_log_prob).

    Args:
        log_prob: [...], of the policy being trained.
        old_log_prob: [...], of the policy that acted.
        advantages: Any shape that broadcasts to [...].
        dual_clip: c > 1; where A < 0, the loss is at most c |A|.
        log_ratio_range: log r is clamped to it before anything else; None for no bound. Where it
            was outside, there is no gradient, whatever the sign of A.

    Raises:
        ValueError: If the three would broadcast to a larger shape than that of `log_prob`, as
            [N, 1] and [N] do. `align_to_log_probs` makes the shapes fit.
    """
    shape = log_prob.shape
    if old_log_prob.shape != shape or torch.broadcast_shapes(shape, advantages.shape) != shape:
        raise ValueError(
            f"log-probs {list(shape)} do not fit old log-probs {list(old_log_prob.shape)} and "
            f"advantages {list(advantages.shape)}; reduce the log-probs with `reduce_log_probs` "
            "and align the advantages with `align_to_log_probs`, at the same level"
        )
    log_ratio = log_prob.float() - old_log_prob.float()
    if log_ratio_range != (None, None):
        log_ratio = log_ratio.clamp(*log_ratio_range)
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip_low, 1 + clip_high)
    advantages = advantages.float()
    unclipped_loss, clipped_loss = -advantages * ratio, -advantages * clipped_ratio
    loss = torch.maximum(unclipped_loss, clipped_loss)
    is_clipped = unclipped_loss < clipped_loss
    is_dual_clipped = torch.zeros_like(is_clipped)
    if dual_clip is not None:
        ceiling = dual_clip * advantages.abs()
        is_dual_clipped = loss > ceiling
        loss = torch.minimum(loss, ceiling)
    return Surrogate(
        loss,
        ratio.detach(),
        log_ratio.detach(),
        clipped_ratio.detach(),
        is_clipped,
        is_dual_clipped,
    )


def interpolated_log_probs(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, staleness: torch.Tensor
) -> torch.Tensor:
    """Log-probabilities of the weights at the begin of the update, guessed without a forward pass.

    They lie between those of the policy that acted s updates earlier and those of the policy being
    trained, which is one more update away: old + s / (s + 1) (new - old).

    Args:
        log_prob: [...], of the policy being trained.
        old_log_prob: [...], of the policy that acted.
        staleness: s, 0 or more; any shape that broadcasts to [...].
    """
    share = staleness / (staleness + 1)
    return (old_log_prob + share * (log_prob - old_log_prob)).detach()


def decoupled_surrogate(
    log_prob: torch.Tensor,
    proximal_log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    max_weight: float | None = None,
) -> DecoupledSurrogate:
    """The clipped surrogate around the proximal policy, times (proximal / policy that acted).

    Clipping then bounds how far an update goes, and not how old its episodes are.

    Args:
        log_prob: [...], of the policy being trained.
        proximal_log_prob: [...], of the weights at the begin of the update.
        old_log_prob: [...], of the policy that acted.
        advantages: Any shape that broadcasts to [...].
        clip_low: As in `clipped_surrogate`.
        clip_high: As in `clipped_surrogate`.
        dual_clip: As in `clipped_surrogate`.
        max_weight: Entries of a larger weight are left out; None for none.
    """
    surrogate = clipped_surrogate(
        log_prob, proximal_log_prob, advantages, clip_low, clip_high, dual_clip
    )
    weight = (proximal_log_prob - old_log_prob).exp().detach()
    kept = torch.ones_like(weight, dtype=torch.bool) if max_weight is None else weight <= max_weight
    return DecoupledSurrogate(surrogate._replace(loss=surrogate.loss * weight), weight, kept)


def surrogate_metrics(
    surrogate: Surrogate, mask: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """Means over the entries in the mask, as scalar tensors, so that nothing waits for a GPU.

    Both KL metrics estimate KL(old || new) from samples of the old policy. `actor/approx_kl` is k3,
    r - 1 - log r: it is never negative and has a low variance. `actor/approx_kl_k1` is -log r: it
    is unbiased, but noisy and often negative.
    """
    _, ratio, log_ratio, clipped_ratio, is_clipped, is_dual_clipped = surrogate
    elementwise = {
        "actor/ratio": ratio,
        "actor/ratio_abs": (ratio - 1).abs(),
        "actor/clipped_ratio": clipped_ratio,
        "actor/approx_kl": torch.expm1(log_ratio) - log_ratio,
        "actor/approx_kl_k1": -log_ratio,
        "actor/pg_clipfrac": is_clipped.float(),
        "actor/dual_clipfrac": is_dual_clipped.float(),
    }
    return {name: aggregate(values, mask) for name, values in elementwise.items()}


def clipped_value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    value_clip: float | None,
    huber_delta: float,
) -> ValueLoss:
    """max(huber(R - V), huber(R - V_clipped)), V_clipped = V_old + clip(V - V_old, +-value_clip).

    huber(e) is e^2 / 2 where |e| is up to `huber_delta`, and delta (|e| - delta / 2) beyond (doi
    10.1214/aoms/1177703732). All three inputs have the same shape. If `value_clip` is None, nothing
    is clipped.
    """
    if not values.shape == old_values.shape == returns.shape:
        raise ValueError(
            f"values {list(values.shape)}, old values {list(old_values.shape)} and returns "
            f"{list(returns.shape)} must have the same shape"
        )
    values, old_values, returns = values.float(), old_values.float(), returns.float()
    loss = functional.huber_loss(values, returns, reduction="none", delta=huber_delta)
    if value_clip is None:
        return ValueLoss(loss, torch.zeros_like(values, dtype=torch.bool))
    change = values - old_values
    clipped_values = old_values + change.clamp(-value_clip, value_clip)
    clipped_loss = functional.huber_loss(
        clipped_values, returns, reduction="none", delta=huber_delta
    )
    # Compare the change before the clamp: after it, only rounding errors exceed the clip range.
    return ValueLoss(torch.maximum(loss, clipped_loss), change.detach().abs() > value_clip)


def explained_variance_sums(
    values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Float64 [5]: the count and the sums of R, R^2, e, e^2 with e = R - V.

    They can be added up over minibatches.
    """
    keep = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    kept_returns = torch.where(keep, returns.detach().double(), 0.0)
    errors = torch.where(keep, returns.detach().double() - values.detach().double(), 0.0)
    terms = [keep.double(), kept_returns, kept_returns.square(), errors, errors.square()]
    return torch.stack([term.sum() for term in terms])


def explained_variance(sums: torch.Tensor) -> float:
    """1 - Var(R - V) / Var(R) from `explained_variance_sums`; NaN if the returns do not vary."""
    count, returns_sum, returns_sq, errors_sum, errors_sq = sums.tolist()
    if count == 0:
        return float("nan")
    returns_var = returns_sq / count - (returns_sum / count) ** 2
    errors_var = errors_sq / count - (errors_sum / count) ** 2
    has_variance = returns_var > 1e-12 * returns_sq / count  # below that it is a rounding error
    return 1 - errors_var / returns_var if has_variance else float("nan")


def kl_penalty(log_prob: torch.Tensor, ref_log_prob: torch.Tensor, kind: KlKind) -> torch.Tensor:
    """Elementwise penalty for leaving the reference policy; its gradient flows into `log_prob`.

    With d = log_prob - ref_log_prob: k1 = d, abs = |d|, k2 = d^2 / 2, k3 = exp(-d) + d - 1.
    Prefer k2 or k3 in a loss: the gradient of k1 is the score function, whose mean is 0. Nothing
    is clamped, so k3 grows like exp(-d). (RLinf clamps k3 at 10, where its gradient vanishes.)
    """
    difference = log_prob.float() - ref_log_prob.detach().float()
    match kind:
        case "k1":
            return difference
        case "abs":
            return difference.abs()
        case "k2":
            return difference.square() / 2
        case "k3":
            return torch.expm1(-difference) + difference
    raise ValueError(f"KL penalty {kind!r}; choose one of {typing.get_args(KlKind)}")


def aggregate(values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The mean over the entries in the mask, a scalar; 0 if the mask is empty.

    Args:
        values: [...].
        mask: bool, broadcasts to [...].
    """
    if mask is None:
        return values.mean()
    mask = mask.expand_as(values)
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


def row_means(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of each row's entries in the mask, [N]; 0 for a row without such entries."""
    values, mask = values.reshape(len(values), -1), mask.reshape(len(mask), -1)
    return values.where(mask, 0.0).sum(1) / mask.sum(1).clamp(min=1)
