"""Is what a policy is measured on also what it learned from? Compared by content, not by numbers or
file names: whole episodes, and single frames of episodes that are otherwise different.

Held out are the episodes of every split but "train", and those that training keeps for validation
(`rrf.data.dataset.held_out`).

Legend: N frames.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from rrf.data.dataset.held_out import is_held_out, split_range
from rrf.data.validation.checks import Finding
from rrf.data.validation.tables import Tables, frame_digests


@dataclasses.dataclass(frozen=True)
class Division:
    """Episodes for training, and those that are held out from them."""

    name: str
    training: frozenset[int]
    held_out: frozenset[int]


def divisions(splits: Mapping[str, str], total: int, held_out_fraction: float) -> list[Division]:
    """The ways in which the episodes of a dataset are divided."""
    ranges = {name: split_range(text, total) for name, text in splits.items()}
    episodes = {name: frozenset(found) for name, found in ranges.items() if found}
    first = "train" if "train" in episodes else next(iter(episodes), "")
    found = [
        Division(f"splits.{name}", episodes[first], held_out)
        for name, held_out in episodes.items()
        if name != first
    ]
    kept = frozenset(number for number in range(total) if is_held_out(number, held_out_fraction))
    if kept:
        found.append(Division("held_out_fraction", frozenset(range(total)) - kept, kept))
    return found


def leakage_findings(
    tables: Tables,
    episode_digests: Mapping[int, str],
    held_out_fraction: float,
    max_leaked_fraction: float,
) -> list[Finding]:
    """Held-out episodes that training episodes hold too, as a whole or in part.

    Args:
        tables: The dataset.
        episode_digests: Episode -> digest of its content.
        held_out_fraction: Share of the episodes that training holds out.
        max_leaked_fraction: Largest allowed share of an episode's frames.
    """
    found = divisions(tables.info.get("splits", {}), len(tables.episode_meta), held_out_fraction)
    if not found:
        return []
    frames_n = frame_digests(tables)
    episode_n = tables.frames["episode_index"].to_numpy()
    rows_of = tables.frames.groupby("episode_index").indices
    findings = []
    for division in found:
        is_training_n = np.isin(episode_n, list(division.training))
        is_leaked_n = np.isin(frames_n, frames_n[is_training_n])
        owners: dict[str, int] = {}
        for number in sorted(division.training & episode_digests.keys()):
            owners.setdefault(episode_digests[number], number)
        for number in sorted(division.held_out & episode_digests.keys()):
            rows, leaked = rows_of[number], is_leaked_n[rows_of[number]]
            value, frame = "", None
            if number in division.training:
                value = "is among the training episodes itself"
            elif episode_digests[number] in owners:
                value = f"same content as training episode {owners[episode_digests[number]]}"
            elif leaked.mean() > max_leaked_fraction:
                first = rows[leaked.argmax()]
                twin = np.flatnonzero((frames_n == frames_n[first]) & is_training_n)[0]
                frame = int(tables.frames["frame_index"].iloc[first])
                value = (
                    f"{leaked.mean():.0%} of its frames are in training episodes too, this one in "
                    f"episode {episode_n[twin]}, frame {tables.frames['frame_index'].iloc[twin]}"
                )
            if value:
                findings.append(Finding(division.name, value, number, frame))
    return findings
