"""Checks that look at a dataset as a whole, which a row-by-row suite cannot: do its parts agree
with each other?

Each of these was broken in some published dataset: row ranges that contradict the metadata, counts
of a larger original, declared keys without data, splits past the end, the same episodes twice, and
actions so close to the one before that a low training loss proves nothing.

Is what a policy is measured on also what it learned from? Held out are the episodes of every split
but "train", and those that training keeps for validation (`rrf.data.dataset.held_out`). They are
compared by content: whole episodes, the actions of an episode alone (a take that was played back
has other poses and the same actions), and single frames of episodes that are otherwise different.

Legend: N frames, A action dimension.
"""

import collections
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.held_out import held_out, split_range
from rrf.data.language import DTYPE
from rrf.data.schema import ACTION, IMAGE_PREFIX
from rrf.data.validation.checks import CheckResult, Finding, result, results
from rrf.data.validation.tables import Tables, action_digests, episode_digests, frame_digests
from rrf.data.video import VideoReader


def check_files(root: str | Path, severities: Mapping[str, str]) -> list[CheckResult]:
    """Whether the dataset can be read as tables at all; if one of these fails, nothing else can be
    checked.
    """
    root, findings = Path(root), []
    title = "every file is there and readable"
    try:
        info = layout.read_info(root)
        layout.schema_of(info)
        parquet.read_tasks(root)
        episodes = parquet.read_episodes(root)
        paths = parquet.data_files(root)
    except ValueError as error:
        return [result("files", title, [Finding("meta", str(error))], severities)]
    for path in paths:
        try:
            parquet.read_table(path, [])
        except ValueError as error:
            findings.append(Finding(str(path.relative_to(root)), str(error)))
    for path in sorted(root.glob("videos/*/*/*.mp4")):
        try:
            VideoReader(path, info["fps"]).close()
        except ValueError as error:
            findings.append(Finding(str(path.relative_to(root)), str(error)))
    results = [result("files", title, findings, severities)]
    if not findings:
        disagreements = _feature_findings(info, paths) + _video_findings(root, info, episodes)
        results.append(
            result(
                "features", "declared features and stored columns agree", disagreements, severities
            )
        )
    return results


def check_tables(
    tables: Tables, severities: Mapping[str, str], cfg: ChecksCfg
) -> list[CheckResult]:
    """Whether the parts of a readable dataset agree."""
    limits, digests = cfg.limits, episode_digests(tables)
    hold, found_hold = hold_previous_error(tables), []
    if hold is not None and hold < limits.min_hold_previous_error:
        found_hold = [Finding(ACTION, f"repeating the last action is off by only {hold:.4f} std")]
    leaked = leakage_findings(tables, digests, cfg.held_out_fraction, limits.max_leaked_fraction)
    checks = [
        ("counts", "info.json counts what is on disk", _count_findings(tables)),
        ("episode_ranges", "episodes lie where the episode table says", _range_findings(tables)),
        ("tasks", "episodes and frames name known instructions", _task_findings(tables)),
        ("splits", "splits lie within the dataset", _split_findings(tables)),
        ("images_decodable", "every image can be decoded", _image_findings(tables)),
        ("duplicate_episodes", "no two episodes have the same content", _duplicates(digests)),
        (
            "same_actions",
            "no two different episodes have the same actions",
            _same_actions(action_digests(tables), digests),
        ),
        ("leakage", "training episodes hold nothing of the held-out ones", leaked),
        (
            "hold_previous_baseline",
            f"repeating the last action is off by at least {limits.min_hold_previous_error} std",
            found_hold,
        ),
    ]
    return results(checks, severities)


def hold_previous_error(tables: Tables) -> float | None:
    """Mean |action[t] - action[t-1]| in units of each dimension's standard deviation, within
    episodes.

    None if there are no two frames to compare or no dimension moves.
    """
    action_na = tables.vectors[ACTION].astype(np.float64)
    episode_n = tables.frames["episode_index"].to_numpy()
    is_pair = episode_n[1:] == episode_n[:-1]
    std_a = action_na.std(axis=0)
    if not is_pair.any() or not (std_a > 0).any():
        return None
    error_na = np.abs(np.diff(action_na, axis=0))[is_pair][:, std_a > 0] / std_a[std_a > 0]
    return float(error_na.mean())


def _feature_findings(info: dict, paths: list[Path]) -> list[Finding]:
    findings = []
    declared = {key: f for key, f in info["features"].items() if f["dtype"] != "video"}
    guessed = ("image", DTYPE)  # columns whose types Arrow guessed
    for path in paths:
        schema = pq.read_schema(path)
        for key, feature in declared.items():
            if key not in schema.names:
                findings.append(Finding(key, f"declared in info.json, missing in {path.name}"))
                continue
            stored = schema.field(key).type
            while parquet.is_list(stored):
                stored = stored.value_type
            scalar = str(stored)
            names = {"float": "float32", "double": "float64"}
            if feature["dtype"] not in guessed and names.get(scalar, scalar) != feature["dtype"]:
                findings.append(
                    Finding(
                        key, f"is {schema.field(key).type} in {path.name}, not {feature['dtype']}"
                    )
                )
        findings += [
            Finding(key, f"stored in {path.name}, not declared in info.json")
            for key in schema.names
            if key not in declared
        ]
    return findings


def _video_findings(root: Path, info: dict, episodes: pd.DataFrame) -> list[Finding]:
    """Declared videos whose place in the episode table, or whose file, is missing."""
    findings = []
    for key in [key for key, f in info["features"].items() if f["dtype"] == "video"]:
        columns = [
            f"videos/{key}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")
        ]
        lacking = [column for column in columns if column not in episodes]
        if lacking:
            findings.append(Finding(key, f"declared as video, but no episode says '{lacking[0]}'"))
            continue
        for chunk, file in sorted(set(zip(*(episodes[c] for c in columns[:2]), strict=True))):
            path = info["video_path"].format(video_key=key, chunk_index=chunk, file_index=file)
            if not (root / path).is_file():
                findings.append(Finding(key, f"{path} is missing"))
    return findings


def _count_findings(tables: Tables) -> list[Finding]:
    on_disk = {
        "total_episodes": (tables.frames["episode_index"].nunique(), len(tables.episode_meta)),
        "total_frames": (len(tables.frames), int(tables.episode_meta["length"].to_numpy().sum())),
        "total_tasks": (len(tables.tasks), len(tables.tasks)),
    }
    findings = []
    for key, (present, listed) in on_disk.items():
        declared = tables.info.get(key)
        if not declared == present == listed:
            value = f"info.json says {declared}, the data hold {present}, the tables list {listed}"
            findings.append(Finding(key, value))
    return findings


def _range_findings(tables: Tables) -> list[Finding]:
    findings, expected = [], 0
    episode_n = tables.frames["episode_index"].to_numpy()
    index_n = tables.frames["index"].to_numpy()
    place_n = tables.places
    for row in tables.episode_meta.to_dict("records"):
        start, stop = row["dataset_from_index"], row["dataset_to_index"]
        number, length = row["episode_index"], row["length"]
        problem = ""
        if start != expected:
            problem = f"starts at row {start}, the one before ends at {expected}"
        elif stop - start != length:
            problem = f"rows {start} to {stop} for a length of {length}"
        elif stop > len(episode_n) or not (episode_n[start:stop] == number).all():
            problem = f"rows {start} to {stop} hold other episodes or are missing"
        elif not (index_n[start:stop] == np.arange(start, stop)).all():
            problem = f"index does not count from {start} to {stop - 1}"
        elif not (place_n[start:stop] == (row["data/chunk_index"], row["data/file_index"])).all():
            problem = f"its rows lie in chunk and file {place_n[start].tolist()}"
        if problem:
            findings.append(Finding("dataset_from_index", problem, episode=number))
        expected = stop
    return findings


def _task_findings(tables: Tables) -> list[Finding]:
    times = collections.Counter(tables.tasks)
    findings = [
        Finding("tasks.parquet", f"instruction {task!r} occurs {times[task]} times")
        for task in sorted(times)
        if times[task] > 1
    ]
    episodes = tables.episodes
    used = dict(zip(episodes["episode_index"], episodes["instruction"], strict=True))
    for row in tables.episode_meta.to_dict("records"):
        number, listed = row["episode_index"], list(row["tasks"])
        unknown = [task for task in listed if task not in times]
        if unknown:
            value = f"instruction {unknown[0]!r} is not in tasks.parquet"
            findings.append(Finding("tasks", value, episode=number))
        elif number in used and used[number] not in listed:
            value = f"frames say {used[number]!r}, the episode table {listed}"
            findings.append(Finding("task_index", value, episode=number))
    return findings


def _split_findings(tables: Tables) -> list[Finding]:
    findings, total = [], len(tables.episode_meta)
    for name, text in tables.info.get("splits", {}).items():
        if split_range(text, total) is None:
            findings.append(Finding(f"splits.{name}", f"{text!r} for {total} episodes"))
    return findings


def _image_findings(tables: Tables) -> list[Finding]:
    findings = []
    frames = tables.frames[["episode_index", "frame_index"]].to_numpy()
    for camera, scan in tables.scans.items():
        for row, error in sorted(scan.errors.items()):
            episode, frame = frames[row].tolist()
            findings.append(Finding(f"{IMAGE_PREFIX}{camera}", error, episode, frame))
        unseen = len(frames) - len(scan.errors) - int(np.isfinite(scan.std).sum())
        if unseen:
            findings.append(Finding(f"{IMAGE_PREFIX}{camera}", f"{unseen} frames have no image"))
    return findings


def _duplicates(digests: Mapping[int, str]) -> list[Finding]:
    first: dict[str, int] = {}
    findings = []
    for number, digest in sorted(digests.items()):
        if digest in first:
            value = f"same content as episode {first[digest]}"
            findings.append(Finding("episode", value, episode=number))
        first.setdefault(digest, number)
    return findings


def _same_actions(actions: Mapping[int, str], contents: Mapping[int, str]) -> list[Finding]:
    """Episodes of which another one is a near-duplicate; equal ones are `_duplicates`."""
    first: dict[str, int] = {}
    findings = []
    for number, digest in sorted(actions.items()):
        earlier = first.setdefault(digest, number)
        if contents[earlier] != contents[number]:
            value = f"same actions as episode {earlier}, states or images differ"
            findings.append(Finding(ACTION, value, episode=number))
    return findings


@dataclasses.dataclass(frozen=True)
class Division:
    """Episodes for training, and those that are held out from them."""

    name: str
    training: frozenset[int]
    held_out: frozenset[int]


def divisions(splits: Mapping[str, str], total: int, held_out_fraction: float) -> list[Division]:
    """The ways in which the episodes of a dataset are divided."""
    ranges = {name: split_range(text, total) for name, text in splits.items()}
    episodes = {name: frozenset(divided) for name, divided in ranges.items() if divided}
    first = "train" if "train" in episodes else next(iter(episodes), "")
    divided = [
        Division(f"splits.{name}", episodes[first], held_out)
        for name, held_out in episodes.items()
        if name != first
    ]
    kept = frozenset(held_out(total, held_out_fraction))
    if kept:
        divided.append(Division("held_out_fraction", frozenset(range(total)) - kept, kept))
    return divided


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
    divided = divisions(tables.info.get("splits", {}), len(tables.episode_meta), held_out_fraction)
    if not divided:
        return []
    frames_n, actions = frame_digests(tables), action_digests(tables)
    episode_n = tables.frames["episode_index"].to_numpy()
    rows_of = tables.frames.groupby("episode_index").indices
    findings = []
    for division in divided:
        is_training_n = np.isin(episode_n, list(division.training))
        is_leaked_n = np.isin(frames_n, frames_n[is_training_n])
        owners: dict[str, int] = {}
        for number in sorted(division.training & episode_digests.keys()):
            owners.setdefault(episode_digests[number], number)
        actors = {actions[number]: number for number in sorted(division.training & actions.keys())}
        for number in sorted(division.held_out & episode_digests.keys()):
            rows, leaked = rows_of[number], is_leaked_n[rows_of[number]]
            value, frame = "", None
            if number in division.training:
                value = "is among the training episodes itself"
            elif episode_digests[number] in owners:
                value = f"same content as training episode {owners[episode_digests[number]]}"
            elif actions.get(number) in actors:
                value = f"same actions as training episode {actors[actions[number]]}"
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
