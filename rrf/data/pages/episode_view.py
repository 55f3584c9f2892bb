"""Episodes to look at, frame by frame: one HTML page that needs no other file. It has the images of
all cameras, a curve per dimension with the value at the frame shown, the instruction, language
annotations, and what each key holds. Raw recordings are shown in their own terms, before anything
is converted.

Legend: T frames, D dimensions, H height, W width.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.data.conversion.edit_cfg import Episodes, numbers
from rrf.data.dataset.layout import depth_map, is_depth
from rrf.data.formats.lerobot_files import read_index
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.formats.source_audit import NOT_ON_DISK
from rrf.data.language import Language, describe_row
from rrf.data.pages.pictures import Pictures
from rrf.data.raw import RawEpisode, Source
from rrf.data.remedies import naming_pointers
from rrf.data.schema import INDEX_KEYS, EncodedImages
from rrf.data.validation.summary import dimension_names, duration
from rrf.pages.page import data_url, render

MAX_EPISODES = 20
MAX_FRAMES = 400  # of a longer episode every k-th is shown
MAX_DIMENSIONS = 64  # of a key that gets curves; larger ones are embeddings or maps
IMAGE_SIZE = 320  # px, the longer side at most
_SMALLEST_SIDE = 8  # px, of numbers per frame that are shown as a picture


@dataclasses.dataclass(frozen=True)
class _KeyFacts:
    """What is known of the keys beside their values."""

    types: dict[str, str]
    names: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # of dimensions
    units: dict[str, str] = dataclasses.field(default_factory=dict)


def view_dataset(root: Path, title: str, episodes: Episodes, out: Path) -> None:
    """Write the page about episodes of a LeRobot dataset of any version.

    Args:
        root: The dataset's directory.
        title: What the page is called.
        episodes: Numbers of episodes and ranges of them.
        out: The file.

    Raises:
        ValueError: For an unknown episode, or damaged data, naming file, episode and key.
    """
    source = LeRobotSource(root, {})
    features = read_index(root).features
    types = {
        key: text
        for key, text in source.keys().items()
        if key in features and key not in INDEX_KEYS and not text.endswith(NOT_ON_DISK)
    }
    keys = list(types)
    facts = _KeyFacts(
        types,
        {key: dimension_names(features[key]) for key in keys if len(features[key]["shape"]) < 2},
        {key: _unit(key, features[key]) for key in keys},
    )
    shown = ((number, source.episode(number, keys)) for number in _checked(episodes))
    _write(out, title, str(root), facts, shown)


def view_recordings(cfg: DatasetCfg, raw: Path, episodes: Episodes, out: Path) -> None:
    """Write the page about raw recordings, as the reader of their format gives them.

    Args:
        cfg: The dataset that is made from them.
        raw: Where they lie on this machine.
        episodes: Numbers, counted through all recordings in order, and ranges of them. They are
            the numbers that the episodes have when they are converted.
        out: The file.

    Raises:
        ValueError: For an unknown episode, or damaged data, naming file, episode and key.
    """
    with naming_pointers(raw):
        source = cfg.reader(raw)
        types = {k: text for k, text in source.keys().items() if not text.endswith(NOT_ON_DISK)}
    shown = _raw_episodes(source, _checked(episodes), list(types), cfg)
    _write(out, f"{cfg.name}, raw recordings", str(raw), _KeyFacts(types), shown)


def _raw_episodes(
    source: Source, wanted: Sequence[int], keys: Sequence[str], cfg: DatasetCfg
) -> Iterator[tuple[int, RawEpisode]]:
    recordings = source.recordings()
    total = sum(recording.num_episodes for recording in recordings)
    if wanted[-1] >= total:
        raise ValueError(
            f"there is no episode {wanted[-1]} in {cfg.source.path}, only 0 to {total - 1}"
        )
    first = 0
    for recording in recordings:
        inside = [n for n in wanted if first <= n < first + recording.num_episodes]
        if inside:
            last = inside[-1] - first + 1
            read = itertools.islice(source.episodes(recording, keys), last)
            for number, raw in enumerate(read, start=first):
                if number in inside:
                    fps = cfg.source.fps or raw.fps or raw.usual_fps or float(cfg.fps)
                    yield number, dataclasses.replace(raw, fps=fps)
        first += recording.num_episodes


def _checked(episodes: Episodes) -> list[int]:
    wanted = numbers(episodes)
    if not wanted or len(wanted) > MAX_EPISODES:
        raise ValueError(f"{len(wanted)} episodes are asked for; a page shows 1 to {MAX_EPISODES}")
    return wanted


def _write(
    out: Path, title: str, where: str, facts: _KeyFacts, episodes: Iterator[tuple[int, RawEpisode]]
) -> None:
    shown = [_shown(number, raw, facts) for number, raw in episodes]
    page = render(
        "data/pages/episodes.html",
        title=title,
        where=where,
        episodes=shown,
        data=[_script_data(episode) for episode in shown],
    )
    atomic.write_text(out, page)


def _script_data(episode: dict) -> dict:
    """What the script of the page needs of an episode: numbers, and images as data URLs."""
    dimensions = [dimension for group in episode["groups"] for dimension in group["dimensions"]]
    return {name: episode[name] for name in ("frames", "length", "fps")} | {
        "cameras": [camera["frames"] for camera in episode["cameras"]],
        "values": [dimension["values"] for dimension in dimensions],
    }


def _shown(number: int, raw: RawEpisode, facts: _KeyFacts) -> dict:
    """One episode as the page has it."""
    length, fps = len(raw), raw.fps or 1.0
    frames = list(range(0, length, math.ceil(length / MAX_FRAMES)))
    cameras, groups = [], []
    pictures: dict[str, np.ndarray | EncodedImages] = dict(raw.images)
    for key, values in raw.arrays.items():
        picture = as_picture(values)
        if picture is not None:
            pictures[key] = picture
        elif values.dtype.kind in "biuf" and len(values) >= min(2, length):
            values_td = values.reshape(len(values), -1)[_rows(frames, length, len(values))]
            if values_td.shape[1] <= MAX_DIMENSIONS:
                groups.append(_group(key, values_td, facts))
    for key, images in pictures.items():
        small = Pictures(images, f"{raw.source}: {key}")
        rows = _rows(frames, length, len(images))
        urls = [data_url("image/jpeg", small.jpeg(row, IMAGE_SIZE)) for row in rows]
        is_tiny = max(small.small(0, IMAGE_SIZE).shape) < IMAGE_SIZE // 2
        cameras.append({"key": key, "frames": urls, "is_tiny": is_tiny})
    return {
        "number": number,
        "source": raw.source,
        "instruction": raw.instruction or "(no instruction)",
        "length": length,
        "fps": fps,
        "duration": duration(length / fps),
        "frames": frames,
        "cameras": cameras,
        "groups": groups,
        "language": _annotations(raw.language or Language(), fps),
        "keys": [_key(key, raw, facts) for key in facts.types],
    }


def _rows(frames: Sequence[int], length: int, size: int) -> list[int]:
    """The rows at the same share of the episode, of something that has `size` rows: recordings may
    have several rates.
    """
    return [frame * size // length for frame in frames]


def _unit(key: str, feature: dict) -> str:
    if is_depth(feature):
        return depth_map(key, feature).unit
    return str((feature.get("info") or {}).get("unit", ""))


def _annotations(language: Language, fps: float) -> list[dict]:
    """All language annotations as rows of a table, in the order of time."""
    timed = [(row["timestamp"], "from then on", row) for row in language.persistent]
    for frame, rows in language.events.items():
        timed += [(frame / fps, f"frame {frame}", row) for row in rows]
    return [
        {
            "time": f"{time_s:.2f} s",
            "when": when,
            "style": row["style"] or "",
            "role": row["role"],
            "camera": row["camera"] or "",
            "text": describe_row(row),
        }
        for time_s, when, row in sorted(timed, key=lambda annotation: annotation[0])
    ]


def as_picture(values: np.ndarray) -> np.ndarray | None:
    """Numbers per frame as grey images, uint8 [T, H, W, 3]: the smallest value of the episode is
    black, the largest white. None for what has no height and width.
    """
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[..., 0]
    if (
        values.ndim != 3
        or min(values.shape[1:]) < _SMALLEST_SIDE
        or values.dtype.kind not in "biuf"
    ):
        return None
    numbers_thw = values.astype(np.float32)
    finite = np.isfinite(numbers_thw)
    low, high = (
        (numbers_thw[finite].min(), numbers_thw[finite].max()) if finite.any() else (0.0, 0.0)
    )
    scaled = (np.where(finite, numbers_thw, low) - low) / ((high - low) or 1.0)
    return np.repeat((scaled * 255).round().astype(np.uint8)[..., None], 3, axis=3)


def _group(key: str, values_td: np.ndarray, facts: _KeyFacts) -> dict:
    """The curves of one key."""
    num = values_td.shape[1]
    names = facts.names.get(key) or [str(index) for index in range(num)]
    dimensions = [
        {"name": name, "values": _plain(values_td[:, index])} for index, name in enumerate(names)
    ]
    return {"key": key, "unit": facts.units.get(key, ""), "dimensions": dimensions}


def _plain(values_t: np.ndarray) -> list[float | None]:
    """Six digits; None for what JSON has no number for."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values_t.tolist()]


def _key(key: str, raw: RawEpisode, facts: _KeyFacts) -> dict:
    """A row of the table of keys."""
    values = raw.arrays.get(key)
    text = ""
    if values is not None and values.dtype.kind in "US" and values.size:
        text = str(values.reshape(-1)[0])
    names = ", ".join(facts.names.get(key, [])) if len(facts.names.get(key, [])) > 1 else ""
    unit = facts.units.get(key, "")
    return {"key": key, "type": facts.types[key], "names": names, "unit": unit, "text": text}
