"""Finds the episodes that a policy's training held out, and evaluates the policy on them."""

import typing
from pathlib import Path

from rrf.data.dataset.held_out import is_held_out
from rrf.data.dataset.history import history_options
from rrf.data.dataset.layout import read_info
from rrf.data.dataset.opening import open_dataset
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.open_loop.errors import OpenLoop, open_loop
from rrf.runners.checkpoints.deployable import VLA, described

_DEFAULT_FRACTION = 0.08


def evaluate_held_out(candidate: Candidate, place: str | Path) -> tuple[OpenLoop, list[int]]:
    """The errors of a policy on the episodes of a dataset that its training held out.

    A policy whose training knew no held-out episodes (reinforcement learning, or a validation
    fraction of 0) is evaluated on those that a training with the default fraction would hold out.

    Returns:
        The errors, and the numbers of the episodes.

    Raises:
        ValueError: If the policy does not see images, if it does not fit the dataset, or if there
            are no such episodes.
    """
    from rrf.policies.vla.configs import PolicyCfg
    from rrf.runners.checkpoints import checkpoint
    from rrf.runners.supervised.frames import check_fit

    if candidate.kind != VLA:
        raise ValueError(
            f"{candidate.label} is {described(candidate.kind)}; only policies that see images are "
            "evaluated on recorded episodes"
        )
    policy: typing.Any = candidate.policy or checkpoint.load_policy(candidate.checkpoint)
    cfg = PolicyCfg.from_dict(candidate.config["policy"])
    fraction = candidate.config.get("validation_fraction") or _DEFAULT_FRACTION
    total = read_info(place)["total_episodes"]
    kept = [episode for episode in range(total) if is_held_out(episode, fraction)]
    if not kept:
        raise ValueError(
            f"{place} has {total} episodes, too few to hold out {fraction:.0%} of them; give a "
            "larger dataset"
        )
    known = candidate.config.get("instructions")
    frames = open_dataset(
        place,
        cfg.chunk_length,
        known,
        kept,
        instruction_style=candidate.config.get("instruction_style"),
        **history_options(cfg.past),
    )
    check_fit(cfg, frames.schema)
    stats = checkpoint.load_norm_stats(candidate.checkpoint)
    return open_loop(policy, frames, stats), frames.episodes
