"""Claims in the metadata of a LeRobot directory that do not match its files.

These were seen in published datasets: splits past the end, totals of a larger original, episodes
with a second "task", and videos that must be decoded from far back to reach a frame.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rrf.data.dataset import layout, parquet
from rrf.data.dataset.held_out import split_range
from rrf.data.encoding import MAX_KEYFRAME_INTERVAL_S
from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.lerobot_columns import column_values
from rrf.data.formats.lerobot_files import EPISODES, EpisodePlace, Index, read_lines
from rrf.data.formats.lerobot_statistics import (
    ALL_STATISTICS,
    contradiction,
    read_all_statistics,
)
from rrf.data.formats.video_facts import video_facts

_NUMBERS = ("float32", "float64", "int64", "int32")
_MAX_FRAMES = 1_000_000  # that are read once more
_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")


def audit_lerobot(index: Index) -> list[str]:
    """One sentence per claim that does not hold."""
    places = [place for recording in index.recordings.values() for place in recording]
    info = index.root / layout.INFO
    return [
        *(f"{info}: {text}" for text in _totals(index, places)),
        *(f"{info}: {text}" for text in _splits(index, places)),
        *(f"{index.root}: {text}" for text in _numbers(places)),
        *(f"{index.root}: {text}" for text in _tasks(index)),
        *_keyframes(index, places),
        *(f"{index.root / ALL_STATISTICS}: {text}" for text in _statistics(index, places)),
    ]


def _totals(index: Index, places: list[EpisodePlace]) -> Iterator[str]:
    videos = {v.path for place in places for v in place.videos.values() if v.path.is_file()}
    totals = {
        "total_episodes": len(places),
        "total_frames": sum(place.length for place in places),
        "total_tasks": len(index.tasks) if index.tasks is not None else None,
    }
    if not index.has_shared_files:
        size = index.info.get("chunks_size", 1000)
        last = max(place.number for place in places)
        totals |= {"total_videos": len(videos), "total_chunks": last // size + 1}
    for key, number in totals.items():
        claimed = index.info.get(key)
        if number is not None and claimed is not None and claimed != number:
            yield f"{key} is {claimed}, on disk there are {number}"


def _splits(index: Index, places: list[EpisodePlace]) -> Iterator[str]:
    splits = index.info.get("splits")
    for name, text in splits.items() if isinstance(splits, dict) else ():
        if split_range(text, len(places)) is None:
            yield f"split '{name}' is {text!r}, on disk there are {len(places)} episodes"


def _numbers(places: list[EpisodePlace]) -> Iterator[str]:
    numbers = [place.number for place in places]
    if numbers != list(range(len(numbers))):
        yield (
            f"the {len(numbers)} episodes on disk have the numbers {numbers[0]} to {numbers[-1]}; "
            "they are numbered anew from 0"
        )


def _tasks(index: Index) -> Iterator[str]:
    for number, task in (index.tasks or {}).items():
        if task is None or _NUMBER.fullmatch(task):
            yield f"task {number} is {task!r}, not a sentence"
    several = [(number, tasks) for number, tasks in _listed_tasks(index) if len(tasks) > 1]
    if several:
        number, tasks = several[0]
        yield (
            f"{len(several)} episodes list several tasks, as episode {number} does: "
            f"{', '.join(map(repr, tasks))}; one is kept"
        )


def _listed_tasks(index: Index) -> Iterator[tuple[int, list]]:
    """Number and tasks of every episode in the list of episodes."""
    if index.has_shared_files:
        for row in parquet.read_episodes(index.root).to_dict("records"):
            yield int(row["episode_index"]), [] if row["tasks"] is None else list(row["tasks"])
        return
    for _, line in read_lines(index.root / EPISODES):
        tasks = line.get("tasks")
        yield line["episode_index"], tasks if isinstance(tasks, list) else []


def _keyframes(index: Index, places: list[EpisodePlace]) -> Iterator[str]:
    """Problems of the first video of each camera."""
    for key in places[0].videos:
        path = next((p.videos[key].path for p in places if _has_video(p, key)), None)
        if path is None:
            continue
        try:
            facts = video_facts(path)
        except ValueError:  # reported when it is read
            continue
        if facts.keyframe_interval_s > MAX_KEYFRAME_INTERVAL_S:
            frames = round(facts.keyframe_interval_s * (facts.fps or index.fps))
            yield (
                f"{path} has up to {frames} frames from one keyframe to the next, so reaching a "
                "frame means decoding hundreds"
            )
        if facts.fps and not math.isclose(facts.fps, index.fps, rel_tol=0.01):
            yield f"{path} runs at {facts.fps:.4g} frames/s, {index.fps:g} are declared"


def _statistics(index: Index, places: list[EpisodePlace]) -> Iterator[str]:
    """What v2.0's statistics of all episodes contradict, if they are of just these."""
    length = sum(place.length for place in places)
    said = read_all_statistics(index)
    if not said or index.info.get("total_frames") != length or length > _MAX_FRAMES:
        return
    for key, feature in index.features.items():
        if key not in said or feature.get("dtype") not in _NUMBERS:
            continue
        try:
            parts = [
                column_values(
                    arrow.read_parquet(place.data, [key])[key],
                    key,
                    feature,
                    index.root,
                    str(place.data),
                    lambda text: None,
                )
                for place in places
            ]
        except ValueError:  # reported when it is read
            continue
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        if len(arrays) == len(parts):
            text = contradiction(np.concatenate(arrays), said[key])
            if text is not None:
                yield f"{key} {text}"


def _has_video(place: EpisodePlace, key: str) -> bool:
    return key in place.videos and Path(place.videos[key].path).is_file()
