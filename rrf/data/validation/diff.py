"""What is different between two datasets: episodes by their content, features, statistics.

Episodes are told apart by digests of what they hold, so their numbers, files and compression do not
matter. First, episodes of the same content are paired. Of the rest, two are one episode that was
changed if they share what no other episode has: a whole vector, the images of a camera, or the
numbers of the first frame. What remains was removed or added.
"""

import dataclasses
import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path

from rrf.data.language import DTYPE
from rrf.data.schema import INDEX_KEYS
from rrf.data.validation.summary import (
    START,
    TASK,
    EpisodeSummary,
    OnProgress,
    Summary,
    describe_feature,
    dimension_labels,
    summarise,
)

MAX_SHIFT = 0.1  # of the mean, in standard deviations
MAX_RATIO = 1.1  # of the standard deviations
_COMPARED = ("mean", "std", "min", "max")


@dataclasses.dataclass(frozen=True)
class EpisodeChange:
    """An episode that is in both datasets, with other content."""

    before: EpisodeSummary
    after: EpisodeSummary
    keys: list[str]  # what is different


@dataclasses.dataclass(frozen=True)
class Drift:
    """How one dimension's values differ."""

    dimension: str
    mean: tuple[float, float]  # before, after
    std: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]

    @property
    def shift(self) -> float:
        """By how much the mean moved, in standard deviations of before."""
        moved = abs(self.mean[1] - self.mean[0])
        return moved / self.std[0] if self.std[0] else (math.inf if moved else 0.0)

    @property
    def ratio(self) -> float:
        """Standard deviation after / before."""
        if self.std[0]:
            return self.std[1] / self.std[0]
        return math.inf if self.std[1] else 1.0

    @property
    def is_large(self) -> bool:
        return self.shift > MAX_SHIFT or not 1 / MAX_RATIO <= self.ratio <= MAX_RATIO


@dataclasses.dataclass(frozen=True)
class DatasetDiff:
    """Two datasets compared."""

    before: Summary
    after: Summary
    properties: dict[str, tuple[str, str]]  # what differs besides episodes -> before, after
    same: list[tuple[EpisodeSummary, EpisodeSummary]]
    changed: list[EpisodeChange]
    removed: list[EpisodeSummary]
    added: list[EpisodeSummary]
    drift: list[Drift]  # of every dimension that both have and that is not the same

    @property
    def num_renumbered(self) -> int:
        """Episodes of the same content under another number."""
        return sum(before.number != after.number for before, after in self.same)

    @property
    def is_different(self) -> bool:
        return bool(
            self.properties or self.changed or self.removed or self.added or self.num_renumbered
        )


def diff_datasets(
    before: str | Path,
    after: str | Path,
    with_images: bool = True,
    on_before: OnProgress = lambda done, total, what: None,
    on_after: OnProgress = lambda done, total, what: None,
) -> DatasetDiff:
    """Compare two LeRobot directories of any version.

    Args:
        before: One.
        after: The other.
        with_images: Whether pixels are compared too, which decodes all images.
        on_before: Called after each episode that is read of the one.
        on_after: Of the other.

    Raises:
        ValueError: Naming file, episode and key of what is damaged.
    """
    old = summarise(before, on_before, with_digests=True, with_images=with_images)
    new = summarise(after, on_after, with_digests=True, with_images=with_images)
    cameras = [key for key in old.cameras if key in new.cameras] if with_images else []
    vectors = [key for key in _vectors(old) if key in _vectors(new)]
    said = [DTYPE] if all(DTYPE in summary.episodes[0].digests for summary in (old, new)) else []
    keys = [*vectors, *cameras, *said, TASK]
    same, lost, fresh = _equal(old.episodes, new.episodes, keys)
    scalars = [key for key, stats in old.stats.items() if len(stats["mean"]) == 1]
    telling = [key for key in vectors if key not in scalars]
    pairs = _changed(old.episodes, new.episodes, lost, fresh, [*telling, *cameras, START])
    paired = {id(episode) for pair in pairs for episode in pair}
    return DatasetDiff(
        before=old,
        after=new,
        properties=_properties(old, new),
        same=same,
        changed=[_change(*pair, keys) for pair in pairs],
        removed=[episode for episode in lost if id(episode) not in paired],
        added=[episode for episode in fresh if id(episode) not in paired],
        drift=_drift(old, new),
    )


def _vectors(summary: Summary) -> list[str]:
    """The numeric features."""
    others = {*summary.cameras, DTYPE, TASK, START}
    return [key for key in summary.episodes[0].digests if key not in others]


def _equal(
    before: Sequence[EpisodeSummary], after: Sequence[EpisodeSummary], keys: Sequence[str]
) -> tuple[list[tuple[EpisodeSummary, EpisodeSummary]], list[EpisodeSummary], list[EpisodeSummary]]:
    """Pairs of the same content, and the rest of both."""
    waiting: dict[tuple, deque[EpisodeSummary]] = defaultdict(deque)
    for episode in after:
        waiting[_identity(episode, keys)].append(episode)
    same, lost = [], []
    for episode in before:
        equals = waiting[_identity(episode, keys)]
        if equals:
            same.append((episode, equals.popleft()))
        else:
            lost.append(episode)
    fresh = [episode for equals in waiting.values() for episode in equals]
    return same, lost, sorted(fresh, key=lambda episode: episode.number)


def _changed(
    before: list[EpisodeSummary],
    after: list[EpisodeSummary],
    lost: list[EpisodeSummary],
    fresh: list[EpisodeSummary],
    telling: Sequence[str],
) -> list[tuple[EpisodeSummary, EpisodeSummary]]:
    """Pairs of `lost` and `fresh` episodes that share what no other episode has."""
    pairs: list[tuple[EpisodeSummary, EpisodeSummary]] = []
    waiting = {id(episode) for episode in (*lost, *fresh)}
    for key in telling:
        old, new = _unique(before, key), _unique(after, key)
        for digest in old:
            pair = (old[digest], new.get(digest))
            if pair[1] is not None and {id(pair[0]), id(pair[1])} <= waiting:
                waiting -= {id(pair[0]), id(pair[1])}
                pairs.append((pair[0], pair[1]))
    return sorted(pairs, key=lambda pair: pair[0].number)


def _unique(episodes: list[EpisodeSummary], key: str) -> dict[str, EpisodeSummary]:
    """Digest -> episode, of the digests that only one episode has."""
    counts = Counter(episode.digests[key] for episode in episodes)
    return {single.digests[key]: single for single in episodes if counts[single.digests[key]] == 1}


def _change(before: EpisodeSummary, after: EpisodeSummary, keys: Sequence[str]) -> EpisodeChange:
    different = [key for key in keys if before.digests[key] != after.digests[key]]
    return EpisodeChange(before, after, different)


def _identity(episode: EpisodeSummary, keys: Sequence[str]) -> tuple:
    return episode.length, *(episode.digests[key] for key in keys)


def _properties(before: Summary, after: Summary) -> dict[str, tuple[str, str]]:
    properties = {
        "fps": (f"{before.fps:g}", f"{after.fps:g}"),
        "robot_type": (str(before.info.get("robot_type")), str(after.info.get("robot_type"))),
    }
    features = {**before.info["features"], **after.info["features"]}
    for key in features:
        if key not in INDEX_KEYS:
            properties[key] = _feature(before, key), _feature(after, key)
    return {what: pair for what, pair in properties.items() if pair[0] != pair[1]}


def _feature(summary: Summary, key: str) -> str:
    feature = summary.info["features"].get(key)
    if feature is None:
        return "absent"
    if key in summary.missing:
        return "not on disk"
    dtype, shape, names, unit = describe_feature(summary, key)
    return " ".join(part for part in (f"{dtype}{shape}", names, unit) if part)


def _drift(before: Summary, after: Summary) -> list[Drift]:
    """Of dimensions of the same name."""
    old, new = _dimensions(before), _dimensions(after)
    drifts = []
    for name in old:
        if name in new and old[name] != new[name]:
            pairs = {key: (old[name][key], new[name][key]) for key in _COMPARED}
            drifts.append(Drift(name, pairs["mean"], pairs["std"], pairs["min"], pairs["max"]))
    return drifts


def _dimensions(summary: Summary) -> dict[str, dict[str, float]]:
    """Dimension -> its statistics."""
    return {
        label: {statistic: stats[statistic][index] for statistic in _COMPARED}
        for key, stats in summary.stats.items()
        for index, label in enumerate(dimension_labels(key, summary.info["features"][key]))
    }
