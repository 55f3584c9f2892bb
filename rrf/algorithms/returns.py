"""Returns and advantages of recorded rollouts: pure functions, no configs.

* Generalised advantage estimation (arXiv:1506.02438, eq. 11-16).
* Bootstrap at a time limit (arXiv:1712.00378): the value of the last observation stands for what
  the cut-off episode would still have earned.
* Group advantages of GRPO (arXiv:2402.03300, section 4.1.2) and the choice of informative groups
  (DAPO, arXiv:2503.14476, "dynamic sampling").

`dones` always has one row more than `rewards`: row 0 stands before the first step, row t + 1 after
step t.

Legend: S action chunks in a rollout, C executed steps of a chunk, T time (S chunks or S * C
steps), B environments, N groups, G members of a group.
"""

import math

import torch


def require_finite(name: str, values: torch.Tensor) -> None:
    """Stop at the first NaN or infinity.

    Raises:
        ValueError: with the name, the index of the first offender and how many there are.
    """
    bad = (~torch.isfinite(values)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        raise ValueError(
            f"{name}{index} is {values[tuple(index)].item()} ({len(bad)} of {values.numel()} "
            "entries are not finite); a policy update from it would destroy the policy"
        )


def chunk_level(
    rewards_sbc: torch.Tensor, dones_sbc: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One time step per chunk: rewards [S, B] are sums, dones [S + 1, B] say "any step of it"."""
    return rewards_sbc.sum(-1), dones_sbc.any(-1)


def action_level(
    rewards_sbc: torch.Tensor, dones_sbc: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One time step per action: rewards [T, B] and dones [T + 1, B], T = S * C.

    Of row 0 of `dones`, which is a whole chunk, only the last step stands before the first action.
    """
    rewards_tb = steps_from_chunks(rewards_sbc)
    return rewards_tb, steps_from_chunks(dones_sbc)[-(len(rewards_tb) + 1) :]


def action_level_values(values_sbc: torch.Tensor) -> torch.Tensor:
    """Values [T + 1, B] from [S + 1, B, C]: of the last chunk only the first step is needed."""
    chunk_length = values_sbc.shape[-1]
    values_tb = steps_from_chunks(values_sbc)
    return values_tb[: len(values_tb) - chunk_length + 1]


def steps_from_chunks(chunks_sbc: torch.Tensor) -> torch.Tensor:
    """[S, B, C] to [S * C, B], in the order in which the steps were executed."""
    return chunks_sbc.transpose(1, 2).flatten(0, 1)


def chunks_from_steps(steps_tb: torch.Tensor, chunk_length: int) -> torch.Tensor:
    """[S * C, B] to [S, B, C], the inverse of `steps_from_chunks`."""
    return steps_tb.unflatten(0, (-1, chunk_length)).transpose(1, 2)


def add_time_limit_bootstrap(
    rewards: torch.Tensor, truncated: torch.Tensor, final_values: torch.Tensor, gamma: float
) -> torch.Tensor:
    """r + gamma V(last observation) where an episode was cut off; elsewhere the rewards as given.

    All three have one shape. `final_values` counts only where `truncated`, so anything may stand
    in the other places, NaN too. A step that truncates and terminates at once has no future:
    pass `truncated & ~terminated`.
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
        rewards_tb: [T, B], with the bootstrap at time limits already in them.
        values_tb: [T + 1, B]; the last row is the value after the last step.
        dones_tb: bool [T + 1, B]; row 0 is not looked at.
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
    advantages_tb = torch.empty_like(deltas_tb)
    advantage_b = torch.zeros_like(values_tb[0])
    for t in reversed(range(len(deltas_tb))):
        advantage_b = deltas_tb[t] + gamma * lam * goes_on_tb[t] * advantage_b
        advantages_tb[t] = advantage_b
    return advantages_tb, advantages_tb + values_tb[:-1]


def normalize(
    values: torch.Tensor,
    mask: torch.Tensor | None = None,
    eps: float = 1e-5,
    name: str = "advantages",
) -> torch.Tensor:
    """(x - mean) / (std + eps) with mean and unbiased std of the entries in the mask.

    Entries outside the mask are moved and scaled alike. Fewer than two entries in the mask have no
    spread: then everything is 0.
    """
    chosen = values if mask is None else values[mask]
    require_finite(name, values if mask is None else torch.where(mask, values, 0.0))
    if chosen.numel() < 2:
        return torch.zeros_like(values)
    return (values - chosen.mean()) / (chosen.std() + eps)


def first_episode_mask(dones_tb: torch.Tensor) -> torch.Tensor:
    """Bool [T, B] from dones [T + 1, B]: the steps up to and including the first done.

    An environment that is done before the first step (row 0) has none. The sum over T is the
    length of the first episode.
    """
    return dones_tb[:-1].cumsum(0) == 0


def episode_scores(rewards_tb: torch.Tensor, dones_tb: torch.Tensor) -> torch.Tensor:
    """The undiscounted return [B] of the first episode; what follows its end does not count.

    Row 0 of `dones` is not looked at: the first episode is the one that the first step belongs to.
    """
    require_finite("rewards", rewards_tb)
    ended_tb = torch.cat([torch.zeros_like(dones_tb[:1]), dones_tb[1:]])
    return torch.where(first_episode_mask(ended_tb), rewards_tb, 0.0).sum(0)


def group_advantages(
    scores_ng: torch.Tensor, eps: float = 1e-6, use_std: bool = True
) -> torch.Tensor:
    """(score - group mean) / (unbiased group std + eps), float32 [N, G].

    Without `use_std` only the mean is taken off (Dr. GRPO, arXiv:2503.20783): groups of middling
    difficulty, whose scores spread most, then weigh more.

    Raises:
        ValueError: for a group of one, whose advantage would always be 0, and for scores that are
            not finite.
    """
    group_size = scores_ng.shape[-1]
    if group_size < 2:
        raise ValueError(
            f"a group size of {group_size} leaves nothing to compare with; "
            "group advantages need at least 2 episodes from one initial state"
        )
    require_finite("scores", scores_ng)
    scores_ng = scores_ng.float()
    centered_ng = scores_ng - scores_ng.mean(-1, keepdim=True)
    return centered_ng / (scores_ng.std(-1, keepdim=True) + eps) if use_std else centered_ng


def informative_groups(
    scores_ng: torch.Tensor, lower: float = -math.inf, upper: float = math.inf
) -> torch.Tensor:
    """Bool [N]: groups that teach something.

    A group counts if its scores are not all equal (else every advantage is 0, as after only
    successes or only failures) and lower <= its mean score <= upper.
    """
    require_finite("scores", scores_ng)
    mean_n = scores_ng.float().mean(-1)
    has_spread_n = scores_ng.amax(-1) > scores_ng.amin(-1)
    return has_spread_n & (lower <= mean_n) & (mean_n <= upper)
