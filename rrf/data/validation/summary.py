"""What a dataset holds, in numbers: any LeRobot directory (v2.0, v2.1, v3.0), ours or foreign.

One pass over the recordings, as `rrf.data.formats.lerobot_source` reads them, counts episodes and
instructions and gathers statistics of every numeric feature. Metadata are not believed; only for a
published dataset, whose metadata were checked, are they all that is read.

Legend: T frames of an episode, N rows, D dimensions.
"""

import collections
import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.dataset_cfg import dataset_paths, load_any_cfg
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.layout import NORM_STATS, depth_map, is_depth, read_norm_stats
from rrf.data.dataset.stats import VectorStats, plain
from rrf.data.formats.lerobot_files import read_index
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.images import decode_image
from rrf.data.language import COLUMNS, DTYPE, Language, from_columns
from rrf.data.raw import RawEpisode
from rrf.data.remedies import again, naming_pointers
from rrf.data.schema import INDEX_KEYS, EncodedImages

MAX_EXACT_ROWS = 1 << 18  # quantiles are those of every 2nd, 4th, ... row beyond
MAX_DIMENSIONS = 512  # of a feature whose statistics are gathered; larger ones are maps
TASK = "task"
START = "start"
_NUMBERS = re.compile(r"(float|int|uint|bool)\d*\[[\d, ]*\]")
OnProgress = Callable[[int, int, str], None]  # done, total, what is being read


@dataclasses.dataclass(frozen=True)
class DatasetPlace:
    """Where a dataset is."""

    name: str
    root: Path
    reports: Path | None  # where validation reports on it; None for a directory given by its path

    @property
    def is_published(self) -> bool:
        return (self.root / NORM_STATS).is_file()


@dataclasses.dataclass(frozen=True)
class EpisodeSummary:
    """One episode."""

    number: int
    length: int
    instruction: str  # "" if it has none
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of what the episode holds under each key, of its instruction under TASK, and of the first
    frame's numbers under START.
    """


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a dataset holds."""

    root: Path
    info: dict  # meta/info.json
    fps: float  # of most episodes, as their time stamps tell
    missing: list[str]  # features that are declared but not on disk
    episodes: list[EpisodeSummary]
    stats: dict[str, dict[str, list]]  # numeric feature -> statistic -> a value per dimension
    """Without features of more than MAX_DIMENSIONS, and without maps."""
    warnings: list[str]  # what was odd when it was converted, and now
    annotations: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Style of language annotations -> episodes that have some, rows; "" is that of tool calls."""

    @property
    def num_frames(self) -> int:
        return sum(episode.length for episode in self.episodes)

    @property
    def cameras(self) -> list[str]:
        """Keys of the cameras that are on disk."""
        return [key for key in camera_keys(self.info) if key not in self.missing]

    def instructions(self) -> dict[str, tuple[int, int]]:
        """Instruction -> episodes, frames; the most frequent one first."""
        counts: dict[str, tuple[int, int]] = {}
        for episode in self.episodes:
            episodes, frames = counts.get(episode.instruction, (0, 0))
            counts[episode.instruction] = episodes + 1, frames + episode.length
        return dict(sorted(counts.items(), key=lambda item: -item[1][0]))


def find_dataset(target: str) -> DatasetPlace:
    """The dataset that a name or a path means: of a name what is published, else what is converted.

    Raises:
        ValueError: If there is none, with the closest name or what to type.
    """
    if "://" in target:
        raise ValueError(f"{target} is not on this machine; copy it here and give the directory")
    if "/" in target or target in (".", ".."):
        return _place_of_directory(Path(target))
    name, _, revision = target.partition("@")
    if revision:
        raise ValueError(
            f"'{target}': only data on disk are read; for those of {revision} type: "
            f"git worktree add ../{revision} {revision}, in it: dvc repro --pull; then give "
            f"../{revision}/datasets/{name}"
        )
    try:
        paths = dataset_paths(load_any_cfg(name))
    except ValueError:
        if Path(target).is_dir():
            return _place_of_directory(Path(target))
        raise
    for root in (paths.published, paths.converted):
        if (root / layout.INFO).is_file():
            return DatasetPlace(name, root, paths.reports)
    raise ValueError(f"no dataset at {paths.published}; {again(paths.published)}")


def read_summary(
    root: str | Path, on_progress: OnProgress = lambda done, total, what: None
) -> Summary:
    """What a dataset holds; of a published one from its metadata alone.

    Raises:
        ValueError: Naming file, episode and key of what is damaged.
    """
    root = Path(root)
    if not (root / NORM_STATS).is_file():
        return summarise(root, on_progress)
    rows = parquet.read_episodes(root).to_dict("records")
    episodes = [
        EpisodeSummary(int(row["episode_index"]), int(row["length"]), " / ".join(row["tasks"]))
        for row in rows
    ]
    on_progress(len(episodes), len(episodes), layout.INFO)
    warnings = (read_conversion(root) or {"warnings": []})["warnings"]
    info, stats = layout.read_info(root), read_norm_stats(root)
    said: dict[str, tuple[int, int]] = {}
    if layout.has_language(info):
        bounds = [(int(row["dataset_from_index"]), int(row["dataset_to_index"])) for row in rows]
        for row, columns in zip(rows, parquet.read_language(root, bounds), strict=True):
            _count(said, from_columns(columns, f"{root}: episode {row['episode_index']}"))
    return Summary(root, info, float(info["fps"]), [], episodes, stats, warnings, said)


def summarise(
    root: str | Path,
    on_progress: OnProgress = lambda done, total, what: None,
    on_values: Callable[[EpisodeSummary, dict[str, np.ndarray]], None] = lambda episode, values: (
        None
    ),
    with_digests: bool = False,
    with_images: bool = False,
) -> Summary:
    """Read all episodes of a dataset.

    Args:
        root: The dataset's directory.
        on_progress: Called after each episode.
        on_values: Called with the numeric features of each episode that have statistics, [T, D].
        with_digests: Whether episodes get digests of what they hold.
        with_images: Whether of their pixels too, which decodes all images.

    Raises:
        ValueError: Naming file, episode, key and row of what is damaged.
    """
    root = Path(root)
    with naming_pointers(root):
        index, source = read_index(root), LeRobotSource(root, {})
        missing = _missing(index.features, source)
    sizes = _numeric_features(index.features, source)
    large = {key: size for key, size in sizes.items() if size > MAX_DIMENSIONS}
    maps = layout.maps_of(index.info)
    described = [key for key in sizes if key not in large and key not in maps]
    vectors = list(sizes) if with_digests else described
    cameras = [key for key in camera_keys(index.info) if key not in missing]
    spoken = [key for key in COLUMNS if key in source.keys()]  # noqa: SIM118
    said: dict[str, tuple[int, int]] = {}
    streams = {key: VectorStats(MAX_EXACT_ROWS) for key in described}
    episodes: list[EpisodeSummary] = []
    rates: collections.Counter[float] = collections.Counter()
    recordings = source.recordings()
    total = sum(recording.num_episodes for recording in recordings)
    for recording in recordings:
        places = index.recordings[recording.name]
        read = source.episodes(recording, [*vectors, *spoken, *(cameras if with_images else ())])
        for place, raw in zip(places, read, strict=True):
            values = {key: _rows_of(raw.arrays[key]) for key in vectors}
            for key, stream in streams.items():
                stream.update(values[key])
            digests = _digests(raw, values) if with_digests else {}
            _count(said, raw.language or Language())
            length = len(raw) if vectors else place.length
            rates[raw.fps or index.fps] += 1
            episodes.append(EpisodeSummary(place.number, length, raw.instruction or "", digests))
            on_values(episodes[-1], {key: values[key] for key in described})
            on_progress(len(episodes), total, recording.name)
    stats = {key: plain(stream.result()) for key, stream in streams.items()}
    warnings = [*(read_conversion(root) or {"warnings": []})["warnings"], *source.warnings]
    warnings += [f"{root}: '{key}' is declared in {layout.INFO} but not on disk" for key in missing]
    warnings += [
        f"{root}: '{key}' has {size} dimensions; of more than {MAX_DIMENSIONS} there are no "
        "statistics"
        for key, size in large.items()
        if key not in maps
    ]
    ((fps, _),) = rates.most_common(1)
    return Summary(root, index.info, fps, missing, episodes, stats, warnings, said)


def _count(said: dict[str, tuple[int, int]], language: Language) -> None:
    """Add the annotations of an episode."""
    for style, num_rows in collections.Counter(
        row["style"] or "" for row in language.rows()
    ).items():
        episodes, rows = said.get(style, (0, 0))
        said[style] = episodes + 1, rows + num_rows


def camera_keys(info: Mapping) -> list[str]:
    """The features that are RGB images."""
    features = info["features"].items()
    return [k for k, f in features if f.get("dtype") in ("image", "video") and not is_depth(f)]


def dimension_names(feature: Mapping) -> list[str]:
    """One name per dimension of a feature, numbers where it has none.

    lerobot writes names as a list, as a list of lists and as {"motors": [...]}.
    """
    size = int(np.prod(feature["shape"], dtype=int))
    names = list(_flat(feature.get("names")))
    return names if len(names) == size else [str(index) for index in range(size)]


def dimension_labels(key: str, feature: Mapping) -> list[str]:
    """What the dimensions of a feature are called in tables: "action.dx", or the key alone for a
    number without a name.
    """
    names = dimension_names(feature)
    return [key] if names == ["0"] else [f"{key}.{name}" for name in names]


def describe_feature(summary: Summary, key: str) -> tuple[str, str, str, str]:
    """A feature's dtype, shape, names of dimensions and unit, as text."""
    feature = summary.info["features"][key]
    names = ", ".join(_flat(feature.get("names")))
    unit = str((feature.get("info") or {}).get("unit", ""))
    unit = depth_map(key, feature).unit if is_depth(feature) else unit
    dtype = f"{feature.get('dtype')}{' (not on disk)' if key in summary.missing else ''}"
    return dtype, str(feature["shape"]), names, unit


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _place_of_directory(path: Path) -> DatasetPlace:
    if not path.is_dir():
        raise ValueError(f"no directory {path}; give a dataset's directory, or a name without '/'")
    return DatasetPlace(path.resolve().name, path, None)


def _missing(features: Mapping[str, dict], source: LeRobotSource) -> list[str]:
    types = source.keys()
    return [key for key in features if types.get(key, "(not on disk)").endswith("(not on disk)")]


def _numeric_features(features: Mapping[str, dict], source: LeRobotSource) -> dict[str, int]:
    """The number of dimensions of each feature that is numbers and on disk, without those that only
    count frames.
    """
    types = {key: source.keys().get(key, "") for key in features if key not in INDEX_KEYS}
    return {
        key: math.prod(int(size) for size in re.findall(r"\d+", text.partition("[")[2]))
        for key, text in types.items()
        if _NUMBERS.fullmatch(text)
    }


def _rows_of(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def _digests(raw: RawEpisode, values: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Of numbers as float32, whatever they are stored as, and of pixels."""
    numbers = {key: np.asarray(rows, np.float32) + 0.0 for key, rows in values.items()}
    digests = {key: _sha256([rows]) for key, rows in numbers.items()}
    for key, images in raw.images.items():
        digests[key] = _sha256(_decoded(images, f"{raw.source}: {key}"))
    digests[START] = _sha256([rows[:1] for rows in numbers.values()])
    if raw.language is not None:
        digests[DTYPE] = hashlib.sha256(raw.language.to_json().encode()).hexdigest()
    return digests | {TASK: raw.instruction or ""}


def _decoded(images: np.ndarray | EncodedImages, where: str) -> Iterator[np.ndarray]:
    if isinstance(images, np.ndarray):
        yield from images
        return
    for frame, blob in enumerate(images.blobs):
        try:
            yield decode_image(blob)
        except ValueError as error:
            raise ValueError(f"{where} at frame {frame}: {error}") from error


def _sha256(arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _flat(names) -> Iterator[str]:
    if isinstance(names, str):
        yield names
    elif isinstance(names, Mapping):
        yield from _flat(list(names.values()))
    elif isinstance(names, list):
        for name in names:
            yield from _flat(name)
