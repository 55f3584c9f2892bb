"""Logged episodes of a deployed policy: what a robot saw and did, who decided, and how it ended.

    EPISODE/                    named by the episode's id
        000000.rrflog, ...      records, only ever appended; a new file after `CHUNK_BYTES`
        manifest.json           once the episode is over: SHA-256 of each file, and a summary

`rrf.data.log_records` says how a record is written. The kinds of records:

| kind  | holds                                                                                   |
|-------|-----------------------------------------------------------------------------------------|
| begin | format_version, episode, robot, task, instruction, fps, policy {name, version, digest,  |
|       | url}, start (what is known of the start), state_names, action_names, clock {unix_s,     |
|       | monotonic_s}                                                                            |
| step  | index, t (s since begin), observation {key: array}, action [A] as it was executed, by   |
|       | (policy, operator or fallback), latency_s (of an answer that came for it), progress     |
| event | t, what (guard, revoked, …), and facts                                                  |
| end   | t, outcome (success, failure or unknown), how, score, clock                             |

A process that was killed leaves whole records and perhaps a part of one, which `close_left` cuts
off; the episode is then unfinished. Whatever reads an episode believes its records, and compares
the summary with them. Nothing is unpickled.

Legend: T steps, D state dimension, A action dimension.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rrf import atomic, formats
from rrf.data.log_records import Png, records_in
from rrf.data.schema import STATE, EncodedImages

SUFFIX = ".rrflog"
CHUNK_BYTES = 8 << 20
BEGIN, STEP, EVENT, END = "begin", "step", "event", "end"
POLICY, OPERATOR, FALLBACK = "policy", "operator", "fallback"
SUCCESS, FAILURE, UNKNOWN = "success", "failure", "unknown"
OUTCOMES = (SUCCESS, FAILURE, UNKNOWN)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,63}")
_OTHER_TYPES = (TypeError, KeyError, AttributeError, OverflowError)
"""What comes of a record that has the fields of one, and in them anything."""
_STILL = 0.05  # a step moves that changes the state by this part of the largest change


def is_id(name: object) -> bool:
    """Whether this can be the id of an episode, which names its folder."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def check_id(name: object, where: str) -> str:
    """The id of an episode. Raises ValueError for anything that is none."""
    if not isinstance(name, str) or not is_id(name):
        raise ValueError(f"{where}: {name!r} is no id of an episode (8 to 64 letters, digits, _-)")
    return name


def chunk_files(folder: Path) -> list[Path]:
    """The files of records of an episode, in order."""
    return sorted(folder.glob(f"[0-9]*{SUFFIX}"))


def records_of(folder: Path) -> Iterator[dict]:
    """The records of an episode that was closed.

    Raises:
        ValueError: If a file has anything but whole records.
    """
    for file in chunk_files(folder):
        position = 0
        for record, position in records_in(file):  # noqa: B007 (the last one counts)
            yield record
        if position != file.stat().st_size:
            raise ValueError(f"{file} is damaged at byte {position}; fetch the episode again")


class Summary:
    """Counts the records of an episode, in order, and refuses those that contradict each other.

    Args:
        where: What errors name.
    """

    def __init__(self, where: str):
        self._where = where
        self.begin: dict = {}
        self.end: dict | None = None
        self.steps = self.operator_steps = self.interventions = 0
        self.events: dict[str, int] = {}
        self.first_event: int | None = None
        self.first_operator: int | None = None
        self.progress: float | None = None
        self._by, self._t, self._state = "", 0.0, None
        self._moves: list[float] = []
        self._latencies: list[float] = []
        self._shapes: dict[str, tuple] | None = None

    def add(self, record: Mapping) -> None:
        """Take the next record.

        Raises:
            ValueError: For one that cannot follow the others.
        """
        try:
            self._add(record)
        except _OTHER_TYPES as error:
            raise self._wrong(f"a record has values of other types ({error!r})") from error

    def _add(self, record: Mapping) -> None:
        kind = record.get("kind")
        if (kind == BEGIN) == bool(self.begin) or self.end is not None:
            raise self._wrong(f"a record '{kind}' cannot stand there")
        if kind == BEGIN:
            formats.EPISODE_LOG.check(record, self._where)
            check_id(record.get("episode"), self._where)
            self.begin = dict(record)
            atomic.digest_of(self.to_dict())  # raises for values of other types
        elif kind == STEP:
            self._add_step(record)
        elif kind == EVENT:
            what = str(record.get("what"))
            self.events[what] = self.events.get(what, 0) + 1
            self.first_event = self.steps if self.first_event is None else self.first_event
        elif kind == END:
            if record.get("outcome") not in OUTCOMES:
                raise self._wrong(f"the outcome is {record.get('outcome')!r}, allowed: {OUTCOMES}")
            self.end = dict(record)
            atomic.digest_of(self.to_dict())
        else:
            raise self._wrong(f"a record of the kind {kind!r}")

    def _add_step(self, record: Mapping) -> None:
        if record.get("index") != self.steps:
            raise self._wrong(f"step {record.get('index')!r} stands where {self.steps} should")
        by, seen, action = record.get("by"), record.get("observation"), record.get("action")
        if by not in (POLICY, OPERATOR, FALLBACK) or not isinstance(seen, dict):
            raise self._wrong(f"step {self.steps} does not say what was seen, or by whom it is")
        if not isinstance(action, np.ndarray) or action.ndim != 1:
            raise self._wrong(f"step {self.steps} has no action")
        shapes = {key: getattr(value, "shape", ()) for key, value in seen.items()}
        shapes["action"] = action.shape
        if self._shapes is None:
            self._shapes = shapes
        if shapes != self._shapes:
            raise self._wrong(f"step {self.steps} holds {shapes}, the first one {self._shapes}")
        self.interventions += by == OPERATOR != self._by
        if by == OPERATOR and self.first_operator is None:
            self.first_operator = self.steps
        self.operator_steps += by == OPERATOR
        state = seen.get(STATE)
        if isinstance(state, np.ndarray):
            if self._state is not None:
                self._moves.append(float(np.linalg.norm(state.astype(np.float64) - self._state)))
            self._state = state.astype(np.float64)
        if record.get("progress") is not None:
            self.progress = max(self.progress or 0.0, float(record["progress"]))
        if record.get("latency_s") is not None:
            self._latencies.append(float(record["latency_s"]))
        self._by, self._t, self.steps = by, float(record.get("t", 0.0)), self.steps + 1

    @property
    def last_moved(self) -> int | None:
        """The last step that still changed the state much; None where no state was seen."""
        most = max(self._moves, default=0.0)
        moving = [t for t, move in enumerate(self._moves, 1) if move > _STILL * most]
        return (moving[-1] if moving else 0) if self._state is not None else None

    def to_dict(self) -> dict:
        """The summary as plain data."""
        begin, end = self.begin, self.end or {}
        named = ("episode", "robot", "task", "instruction", "fps", "policy", "start")
        latency_ms = [1000 * value for value in self._latencies]
        return {name: begin.get(name) for name in named} | {
            "began_unix_s": begin.get("clock", {}).get("unix_s"),
            "clock_jump_s": self._clock_jump(),
            "seconds": round(float(end.get("t", self._t)), 3),
            "steps": self.steps,
            "operator_steps": self.operator_steps,
            "interventions": self.interventions,
            "events": dict(self.events),
            "first_event": self.first_event,
            "first_operator": self.first_operator,
            "last_moved": self.last_moved,
            "progress": self.progress,
            "latency_ms": {
                "median": round(float(np.median(latency_ms)), 3),
                "max": round(max(latency_ms), 3),
            }
            if latency_ms
            else None,
            "finished": self.end is not None,
            "outcome": end.get("outcome", UNKNOWN),
            "how": str(end.get("how", "" if self.end else "unfinished")),
            "score": end.get("score"),
        }

    def _clock_jump(self) -> float | None:
        """By how much the wall clock went another way than the monotonic one, s."""
        if self.end is None or "clock" not in self.end or "clock" not in self.begin:
            return None
        begin, end = self.begin["clock"], self.end["clock"]
        wall = end["unix_s"] - begin["unix_s"]
        return round(wall - (end["monotonic_s"] - begin["monotonic_s"]), 3)

    def _wrong(self, why: str) -> ValueError:
        return ValueError(f"{self._where} contradicts itself: {why}")


_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("episode", "outcome", "how"), (str,)),
    **dict.fromkeys(("robot", "task", "instruction"), (str, type(None))),
    **dict.fromkeys(("steps", "operator_steps", "interventions", "finished"), (int,)),
    **dict.fromkeys(("first_event", "first_operator", "last_moved"), (int, type(None))),
    **dict.fromkeys(("policy", "start", "events"), (dict,)),
    **dict.fromkeys(("seconds", "fps"), (int, float)),
    **dict.fromkeys(
        ("began_unix_s", "clock_jump_s", "progress", "score"), (int, float, type(None))
    ),
    "latency_ms": (dict, type(None)),
}
"""What a summary holds."""


def write_manifest(folder: Path, summary: Summary) -> dict:
    """Write the manifest of an episode whose files are complete."""
    files = {file.name: atomic.sha256(file) for file in chunk_files(folder)}
    manifest = {
        **formats.EPISODE_LOG.mark,
        "episode": summary.begin["episode"],
        "digest": atomic.digest_of(files),
        "files": files,
        "summary": summary.to_dict(),
    }
    atomic.write_json(folder / atomic.MANIFEST, manifest)
    return manifest


def parse_manifest(content: str | bytes, where: str) -> dict:
    """A manifest, which may come from anybody; whether its files fit is not looked at.

    Raises:
        ValueError: If it is none.
    """
    manifest = atomic.parse_json(content, where)
    try:
        formats.EPISODE_LOG.check(manifest, where)
        check_id(manifest["episode"], where)
        names, summary = manifest["files"], manifest["summary"]
        is_whole = (
            isinstance(summary, dict)
            and list(names) == [f"{number:06d}{SUFFIX}" for number in range(len(names))]
            and manifest["digest"] == atomic.digest_of(names)
            and summary["episode"] == manifest["episode"]
            and summary.keys() == _KINDS.keys()
            and all(isinstance(summary[key], kinds) for key, kinds in _KINDS.items())
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} is not the manifest of an episode ({error!r})") from error
    if not is_whole or not names:
        raise ValueError(f"{where} is damaged: its files, its digest and its episode do not agree")
    return manifest


def read_manifest(folder: Path) -> dict:
    """The manifest of an episode's folder. Raises ValueError without one, or like
    `parse_manifest`."""
    path = folder / atomic.MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} has no {atomic.MANIFEST}: the episode is not over")
    manifest = parse_manifest(path.read_bytes(), str(path))
    if manifest["episode"] != folder.name:
        raise ValueError(f"{folder} holds the episode {manifest['episode']}; it was renamed")
    return manifest


def check_episode(folder: Path) -> dict:
    """Compare an episode's files with its manifest, and its records with the summary.

    Returns:
        The manifest.

    Raises:
        ValueError: Naming what is missing, changed, unlisted or contradicts itself.
    """
    manifest = read_manifest(folder)
    atomic.refuse_links(folder)
    there = sorted(path.name for path in folder.iterdir())
    if there != sorted([*manifest["files"], atomic.MANIFEST]):
        raise ValueError(f"{folder} holds {', '.join(there)}, but its manifest lists other files")
    for name, digest in manifest["files"].items():
        if atomic.sha256(folder / name) != digest:
            raise ValueError(f"{folder / name} was changed after it was written")
    summary = Summary(str(folder))
    for record in records_of(folder):
        summary.add(record)
    said = manifest["summary"]
    for key, value in summary.to_dict().items():
        if said.get(key) != value:
            raise ValueError(
                f"{folder}: the manifest says {key} is {said.get(key)!r}, the records {value!r}"
            )
    return manifest


def close_left(folder: Path) -> dict | None:
    """Close an episode whose process is gone: keep its whole records, and write the manifest. The
    caller holds the folder (`atomic.alone`).

    Returns:
        The manifest; None if there is no step to keep, and the folder was removed.

    Raises:
        ValueError: If it is damaged elsewhere than at its end.
    """
    if (folder / atomic.MANIFEST).is_file():
        return read_manifest(folder)
    summary, files = Summary(str(folder)), chunk_files(folder)
    for file in files:
        position = 0
        for record, position in records_in(file):  # noqa: B007 (the last one counts)
            summary.add(record)
        if position == file.stat().st_size:
            continue
        if file != files[-1]:
            raise ValueError(
                f"{file} is damaged at byte {position}, after step {summary.steps}; what is behind "
                "it is left alone: look at the disk, or remove the folder"
            )
        with file.open("r+b") as torn:
            torn.truncate(position)
    if files and files[-1].stat().st_size == 0:
        files[-1].unlink()
    if not summary.steps:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        return None
    return write_manifest(folder, summary)


@dataclasses.dataclass
class LoggedEpisode:
    """An episode as it was logged."""

    begin: dict
    end: dict
    observations: dict[str, np.ndarray | EncodedImages]  # key -> [T, ...]
    action: np.ndarray  # float32 [T, A]
    by: np.ndarray  # str [T]
    progress: np.ndarray  # float32 [T], NaN where nobody said

    def __len__(self) -> int:
        return len(self.action)


def read_episode(folder: Path, keys: typing.Collection[str] | None = None) -> LoggedEpisode:
    """All steps of an episode.

    Args:
        folder: The episode's.
        keys: The observations to keep; all by default.

    Raises:
        ValueError: If it is damaged or contradicts itself.
    """
    summary = Summary(str(folder))
    seen: dict[str, list] = {}
    actions, by, progress = [], [], []
    for record in records_of(folder):
        summary.add(record)
        if record["kind"] != STEP:
            continue
        for key, value in record["observation"].items():
            if keys is None or key in keys:
                seen.setdefault(key, []).append(value)
        actions.append(np.asarray(record["action"], np.float32))
        by.append(record["by"])
        said = record.get("progress")
        progress.append(np.nan if said is None else said)
    if not actions:
        raise ValueError(f"{folder} has no step")
    for key, values in seen.items():
        if len({isinstance(value, Png) for value in values}) > 1:
            raise ValueError(f"{folder}: only some steps have {key} as a picture")
    columns: dict[str, np.ndarray | EncodedImages] = {
        key: EncodedImages([value.blob for value in values], "png")
        if isinstance(values[0], Png)
        else np.stack(values)
        for key, values in seen.items()
    }
    return LoggedEpisode(
        summary.begin,
        summary.end or {},
        columns,
        np.stack(actions),
        np.array(by),
        np.array(progress, np.float32),
    )
