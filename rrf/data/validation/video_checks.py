"""Checks of video files and of the pace of time: do table and video hold the same frames, at the
rate the dataset declares, and can a frame be reached without decoding hundreds of others?
"""

from collections.abc import Mapping
from pathlib import Path

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.formats.video_facts import VideoFacts, video_facts
from rrf.data.validation.checks import CheckResult, Finding, results
from rrf.data.validation.tables import TIME_STEP, Tables


def check_pace(
    root: str | Path, tables: Tables, severities: Mapping[str, str], limits: LimitsCfg
) -> list[CheckResult]:
    """Frame counts, frame rates and keyframes."""
    files = _files(Path(root), tables)
    counts, rates, keyframes = _episode_counts(tables), _time_rates(tables, limits), []
    for (key, path), (facts, expected) in files.items():
        if isinstance(facts, str):
            counts.append(Finding(key, facts))
            continue
        if facts.num_frames != expected:
            counts.append(
                Finding(key, f"{path} holds {facts.num_frames} frames, the episodes {expected}")
            )
        if facts.fps is not None and _is_off(facts.fps, tables.schema.fps, limits):
            rates.append(
                Finding(key, f"{path} runs at {facts.fps:.4g} frames/s, not {tables.schema.fps:g}")
            )
        if facts.keyframe_interval_s > limits.max_keyframe_interval_s + 1e-6:
            keyframes.append(
                Finding(key, f"{path} has keyframes {facts.keyframe_interval_s:.3g} s apart")
            )
    interval = f"{limits.max_keyframe_interval_s:g} s"
    checks = [
        ("video_frames", "videos hold as many frames as the table", counts),
        ("measured_fps", "time stamps and videos run at the declared frames/s", rates),
        ("keyframes", f"videos have a keyframe at least every {interval}", keyframes),
    ]
    return results(checks, severities)


def _files(root: Path, tables: Tables) -> dict[tuple[str, str], tuple[VideoFacts | str, int]]:
    """(feature, file) -> what it holds (or why that is not known), frames its episodes have."""
    expected: dict[tuple[str, str], int] = {}
    for key in _video_keys(tables):
        for row in tables.episode_meta.to_dict("records"):
            place = {name: row[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
            path = tables.info["video_path"].format(video_key=key, **place)
            first = round(row[f"videos/{key}/from_timestamp"] * tables.schema.fps)
            stop = expected.get((key, path), 0)
            expected[key, path] = max(stop, first + int(row["length"]))
    facts_of: dict[tuple[str, str], tuple[VideoFacts | str, int]] = {}
    for (key, path), stop in expected.items():
        try:
            facts_of[key, path] = video_facts(root / path), stop
        except ValueError as error:
            facts_of[key, path] = str(error), stop
    return facts_of


def _video_keys(tables: Tables) -> list[str]:
    return [key for key, f in tables.info["features"].items() if f["dtype"] == "video"]


def _episode_counts(tables: Tables) -> list[Finding]:
    """Episodes whose part of a video is longer or shorter than their table."""
    findings = []
    for key in _video_keys(tables):
        if f"videos/{key}/to_timestamp" not in tables.episode_meta:
            continue
        for row in tables.episode_meta.to_dict("records"):
            shown_s = row[f"videos/{key}/to_timestamp"] - row[f"videos/{key}/from_timestamp"]
            shown = round(shown_s * tables.schema.fps)
            if shown != row["length"]:
                value = f"{shown} frames of video, {row['length']} in the table"
                findings.append(Finding(key, value, episode=row["episode_index"]))
    return findings


def _time_rates(tables: Tables, limits: LimitsCfg) -> list[Finding]:
    """Episodes whose time stamps grow at another rate than declared."""
    findings, fps = [], tables.schema.fps
    steps = tables.frames.groupby("episode_index")[TIME_STEP].median().dropna()
    for number, step in zip(steps.index.tolist(), steps.to_numpy(float).tolist(), strict=True):
        rate = 1 / step if step else float("inf")
        if _is_off(rate, fps, limits):
            value = f"grows at {rate:.4g} frames/s, {fps:g} are declared"
            findings.append(Finding("timestamp", value, episode=number))
    return findings


def _is_off(measured: float, declared: float, limits: LimitsCfg) -> bool:
    return not abs(measured - declared) <= limits.max_fps_error * declared
