"""Returns and advantages of recorded rollouts: pure functions, no configs.

* Generalised advantage estimation (arXiv:1506.02438, eq. 11-16).
* Bootstrap at a time limit (arXiv:1712.00378): the value of the last observation replaces the
  return that the truncated episode would still have earned.
* Group advantages of GRPO (arXiv:2402.03300, section 4.1.2).

`dones` always has one row more than `rewards`: row 0 holds the dones before the first step, row
t + 1 those after step t.

Legend: T time (chunks or steps), B environments, N groups, G members of a group.
"""

import torch

from rrf.envs.failure import NotFiniteError


def require_finite(name: str, values: torch.Tensor) -> None:
    """Check that there is no NaN and no infinity in `values`.

    Raises:
        NotFiniteError: With the name, the index of the first such entry and their number.
    """
    bad = (~torch.isfinite(values)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        raise NotFiniteError(
            f"{name}{index} is {values[tuple(index)].item()} ({len(bad)} of {values.numel()} "
            "entries are not finite); an update with it would destroy the policy"
        )


def add_time_limit_bootstrap(
    rewards: torch.Tensor, truncated: torch.Tensor, final_values: torch.Tensor, gamma: float
) -> torch.Tensor:
    """r + gamma V(last observation) where an episode was truncated; elsewhere the given rewards.

    All three tensors have the same shape. `final_values` is used only where `truncated` is true.
    Its other entries may hold anything, even NaN. A step that both truncates and terminates an
    episode must not be bootstrapped: pass `truncated & ~terminated`.
    """
    bootstrapped = rewards + gamma * torch.where(truncated, final_values, 0.0)
    require_finite("rewards with bootstrap", bootstrapped)
    return bootstrapped


def gae(
    rewards_tb: torch.Tensor,
    values_tb: torch.Tensor,
    dones_tb: torch.Tensor,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, float32 [T, B].

        delta_t = r_t + gamma V_{t+1} (1 - d_{t+1}) - V_t
        A_t = delta_t + gamma lam (1 - d_{t+1}) A_{t+1},  R_t = A_t + V_t

    Args:
        rewards_tb: [T, B]; the bootstrap at time limits is already added.
        values_tb: [T + 1, B]; the last row holds the values after the last step.
        dones_tb: bool [T + 1, B]; row 0 is ignored.
    """
    expected = (len(rewards_tb) + 1, *rewards_tb.shape[1:])
    if values_tb.shape != expected or dones_tb.shape != expected:
        raise ValueError(
            f"rewards {list(rewards_tb.shape)} need values and dones of shape {list(expected)}, "
            f"got values {list(values_tb.shape)} and dones {list(dones_tb.shape)}"
        )
    require_finite("rewards", rewards_tb)
    require_finite("values", values_tb)
    rewards_tb, values_tb = rewards_tb.float(), values_tb.float()
    goes_on_tb = (~dones_tb[1:]).float()
    deltas_tb = rewards_tb + gamma * values_tb[1:] * goes_on_tb - values_tb[:-1]
    decay_tb = gamma * lam * goes_on_tb
    advantages = [torch.zeros_like(values_tb[0])]  # from the last step to the first
    for delta_b, decay_b in zip(deltas_tb.flip(0), decay_tb.flip(0), strict=True):
        advantages.append(delta_b + decay_b * advantages[-1])
    advantages_tb = torch.stack(advantages[:0:-1])
    return advantages_tb, advantages_tb + values_tb[:-1]


def normalize(
    values: torch.Tensor, mask: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """(x - mean) / (std + eps) with mean and unbiased std of the entries in the mask.

    Entries outside the mask are shifted and scaled by the same numbers. If the mask has fewer than
    two entries, there is no standard deviation, and the result is 0 everywhere.
    """
    chosen = values if mask is None else values[mask]
    require_finite("advantages", values if mask is None else torch.where(mask, values, 0.0))
    if chosen.numel() < 2:
        return torch.zeros_like(values)
    return (values - chosen.mean()) / (chosen.std() + eps)


def leave_one_out_advantages(scores_ng: torch.Tensor) -> torch.Tensor:
    """Score minus the mean score of the others of the group (RLOO, arXiv:2402.14740), [N, G].

    Raises:
        ValueError: As `group_advantages` does.
    """
    group_size = scores_ng.shape[-1]
    return group_advantages(scores_ng, use_std=False) * (group_size / max(1, group_size - 1))


def group_advantages(
    scores_ng: torch.Tensor, eps: float = 1e-6, use_std: bool = True
) -> torch.Tensor:
    """(score - group mean) / (unbiased group std + eps), float32 [N, G].

    Without `use_std`, only the mean is subtracted (Dr. GRPO, arXiv:2503.20783). Groups of medium
    difficulty, whose scores vary most, then have more weight.

    Raises:
        ValueError: If a group has one member, because its advantage would always be 0, or if a
            score is not finite.
    """
    group_size = scores_ng.shape[-1]
    if group_size < 2:
        raise ValueError(
            f"with a group size of {group_size} an episode has nothing to be compared with; "
            "group advantages need at least 2 episodes from one initial state"
        )
    require_finite("scores", scores_ng)
    scores_ng = scores_ng.float()
    centered_ng = scores_ng - scores_ng.mean(-1, keepdim=True)
    return centered_ng / (scores_ng.std(-1, keepdim=True) + eps) if use_std else centered_ng
