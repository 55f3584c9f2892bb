"""A check before the first update: does the policy to train agree with the policy that played?

Before any optimizer step, the probability ratio must be 1. If it is not, the two policies differ
unintentionally, e.g. by dropout, number format, mask, temperature or normaliser. Training would
then go wrong silently, so it does not start.

A residual has no ratio, but what its actor read while playing must be what its base sees again, and
a correction of zero must leave the base's chunk as it is.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from rrf.policies.policy import Policy
from rrf.policies.precision import Precision, log_probs_of
from rrf.policies.vla.residual import ResidualVLA
from rrf.storage.trajectories import PlayedEpisode, decisions

LIMITS = {"fp32": (1e-2, 1e-5), "bf16": (1.0, 1e-2)}
"""The largest ratio error and approximate KL. Rounding depends on the number of rows computed
together and on the processor. In float32, a density with a standard deviation of 0.005 makes 0.001
of it; in bfloat16, 0.4 and 0.002 were measured with OpenVLA-OFT on an H100."""
MAX_FEATURE_ERROR = 1e-4
"""Of features that were computed together with other rows, relative to the largest of them."""


def check_log_probs(
    player: Policy,
    trained: Policy,
    episodes: Sequence[PlayedEpisode],
    precision: Precision = "fp32",
    num_rows: int | None = None,
) -> dict[str, float]:
    """Compare the log-probabilities recorded while playing with those of the policy to train.

    Args:
        player: The policy that played; only used to find differences.
        trained: The policy to train, before any update.
        episodes: Played episodes.
        precision: That of an update.
        num_rows: Rows of a forward pass; None for all.

    Returns:
        preflight/max_ratio_error and preflight/approx_kl.

    Raises:
        ValueError: If they disagree. The message names what differs.
    """
    observation, replay, old, mask = decisions(episodes, trained.chunk_length)
    new = log_probs_of(trained, observation, replay, precision, num_rows)
    log_ratio = (new - old).double()[mask]
    error = (log_ratio.exp() - 1).abs().max().item()
    kl = (torch.expm1(log_ratio) - log_ratio).mean().item()
    max_error, max_kl = LIMITS[precision]
    if error <= max_error and kl <= max_kl:
        return {"preflight/max_ratio_error": error, "preflight/approx_kl": kl}
    differing = differences(player, trained) or [
        "nothing in the policies themselves, so the head must compute its density differently in "
        "sample and evaluate"
    ]
    raise ValueError(
        "the policy that played and the policy to train disagree before the first update: the "
        f"ratio is off by up to {error:.2g} (allowed: {max_error:g}), the approximate KL is "
        f"{kl:.2g} (allowed: {max_kl:g}). What differs: " + "; ".join(differing)
    )


def check_residual(
    player: ResidualVLA, trained: ResidualVLA, episodes: Sequence[PlayedEpisode]
) -> dict[str, float]:
    """Compare what the actor read while playing with what the policy to train sees, and its chunks
    without a correction with those of its base.

    Args:
        player: The policy that played; only used to find differences.
        trained: The policy to train, before any update.
        episodes: Played episodes, whose observations were kept.

    Returns:
        preflight/max_feature_error, relative to the largest number that was read.

    Raises:
        ValueError: If they disagree. The message names what differs.
    """
    observation, replay, _, _ = decisions(episodes, trained.chunk_length)
    read, (seen, base) = replay["seen"], trained.see(observation)
    error = ((seen.cpu() - read).abs().max() / read.abs().max()).item()
    if not error <= MAX_FEATURE_ERROR:
        differing = differences(player.base, trained.base) or ["nothing in the policies themselves"]
        raise ValueError(
            "what the actor read while playing is not what the policy to train sees: it is off by "
            f"up to {error:.2g} of the largest number (allowed: {MAX_FEATURE_ERROR:g}), so stored "
            "chunks would not be those of this policy. What differs: " + "; ".join(differing)
        )
    if not np.array_equal(trained.sample(observation, greedy=True).actions, base.actions):
        raise ValueError(
            "before the first update, the greedy correction is not zero, so that training would "
            "not begin with the base; initialise the last layer of the actor with zeros"
        )
    return {"preflight/max_feature_error": error}


def differences(player: Policy, trained: Policy) -> list[str]:
    """Descriptions of what differs between two policies."""
    assert isinstance(player, nn.Module)
    assert isinstance(trained, nn.Module)
    differing = []
    for who, policy in (("player", player), ("trained policy", trained)):
        if dropping := _active_dropout(policy):
            differing.append(f"dropout is active in {', '.join(dropping)} of the {who}")
    differing += [
        f"the number format (autocast to {torch.get_autocast_dtype(kind)})"
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind)
    ]
    player_weights, trained_weights = player.state_dict(), trained.state_dict()
    if player_weights.keys() != trained_weights.keys():
        differing.append(
            f"parameters {', '.join(sorted(player_weights.keys() ^ trained_weights.keys())[:4])}"
        )
    shared = [name for name in player_weights if name in trained_weights]
    if other := [
        name for name in shared if player_weights[name].dtype != trained_weights[name].dtype
    ]:
        dtypes = f"{player_weights[other[0]].dtype} and {trained_weights[other[0]].dtype}"
        differing.append(f"the dtype of {other[0]} ({dtypes})")
    elif other := [
        n for n in shared if not torch.equal(player_weights[n].cpu(), trained_weights[n].cpu())
    ]:
        differing.append(f"the weights {', '.join(other[:4])}")
    player_weights, trained_weights = _facts(player), _facts(trained)
    differing += [
        f"the {name} ({player_weights[name]} and {trained_weights[name]})"
        for name in player_weights
        if player_weights[name] != trained_weights.get(name)
    ]
    return differing


def _active_dropout(policy: nn.Module) -> list[str]:
    return [
        name
        for name, module in policy.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
    ]


def _facts(policy: Policy) -> dict[str, str]:
    """The settings, other than weights, on which densities depend."""
    facts = {}
    for name in ("normalize_state", "normalize_action"):
        if hasattr(policy, name):
            facts[f"normaliser {name}"] = str(vars(getattr(policy, name)))
    head = getattr(policy, "head", None)
    for name, value in (head.cfg.to_dict() if head is not None else {}).items():
        facts[name if name == "temperature" else f"head.{name}"] = str(value)
    facts["mask of executed elements"] = str(policy.is_executed.tolist())
    return facts
