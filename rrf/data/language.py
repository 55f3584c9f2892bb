"""Language annotations of an episode, as lerobot 0.6 keeps them in two columns of the data files.

    language_persistent    rows that hold from their `timestamp` (s since the episode began) until
                           another of their style does; the same rows on every frame
    language_events        rows of the frame that they stand on: questions, answers, spoken words

A row is a dict with role, content, style, camera (the feature that it is about, or None) and
tool_calls (JSON values, or None); a persistent row has its timestamp too. On disk tool calls are
JSON text, which lerobot reads as what it stands for. Rules: `lerobot/datasets/language.py` and
`language_render.py` of 0.6.1.

Legend: T frames of an episode.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rrf import atomic

PERSISTENT = "language_persistent"
EVENTS = "language_events"
COLUMNS = (PERSISTENT, EVENTS)
DTYPE = "language"  # of both in info.json
REPHRASINGS = "task_aug"  # other wordings of the task, of which each frame gets one
INSTRUCTION_STYLES = ("subtask", "plan", "memory", "motion", REPHRASINGS)
"""The persistent styles: what can stand in for the task as a frame's instruction."""
_FIELDS = {"role": "", "content": None, "style": None, "camera": None, "tool_calls": None}
_TEXTS = [("role", pa.string()), ("content", pa.string()), ("style", pa.string())]
_REST = [("camera", pa.string()), ("tool_calls", pa.list_(pa.string()))]
_FRAME_TOLERANCE = 1e-2  # frames; time stamps are float32
TYPES = {
    PERSISTENT: pa.list_(pa.struct([*_TEXTS, ("timestamp", pa.float32()), *_REST])),
    EVENTS: pa.list_(pa.struct([*_TEXTS, *_REST])),
}


@dataclasses.dataclass
class Language:
    """The annotations of one episode."""

    persistent: list[dict] = dataclasses.field(default_factory=list)
    events: dict[int, list[dict]] = dataclasses.field(default_factory=dict)  # frame -> its rows

    def __bool__(self) -> bool:
        return bool(self.persistent or self.events)

    def rows(self) -> Iterator[dict]:
        """All rows: the persistent ones, then those of each frame."""
        yield from self.persistent
        for rows in self.events.values():
            yield from rows

    def texts(self, style: str, times_t: np.ndarray, first_row: int, where: str) -> list[str]:
        """What is said in `style` at each frame; "" where nothing is yet.

        Args:
            style: One of `INSTRUCTION_STYLES`.
            times_t: float32 [T], the frames' time stamps, s.
            first_row: The dataset's row of the first frame, which decides over rephrasings.
            where: The beginning of an error.

        Raises:
            ValueError: If two rows begin to hold at the same time, naming it.
        """
        said = [row for row in self.persistent if row["style"] == style]
        if style == REPHRASINGS:
            wordings = [row["content"] or "" for row in said if row["role"] == "user"]
            return [_rephrased(wordings, first_row + frame) for frame in range(len(times_t))]
        said.sort(key=lambda row: row["timestamp"])
        starts = np.array([row["timestamp"] for row in said], np.float32)
        twice = np.flatnonzero(np.diff(starts) == 0)
        if len(twice):
            raise ValueError(
                f"{where}: two rows of style {style} begin at {starts[twice[0]]:g} s, so it is "
                "not said which one holds; remove one, or train on another style"
            )
        active_t = np.searchsorted(starts, times_t.astype(np.float32), side="right") - 1
        return [said[row]["content"] or "" if row >= 0 else "" for row in active_t.tolist()]

    def cut(self, first: int, stop: int, fps: float) -> "Language":
        """The annotations of frames `first` to `stop` as an episode of its own. What held when it
        begins holds from its first frame on.
        """
        latest: dict[tuple, float] = {}
        for row in sorted(self.persistent, key=lambda row: row["timestamp"]):
            if _frame(row, fps) <= first:
                latest[_kind(row)] = row["timestamp"]
        rows = []
        for row in self.persistent:
            frame = _frame(row, fps)
            if first < frame < stop:
                rows.append(row | {"timestamp": float(np.float32((frame - first) / fps))})
            elif frame <= first and latest[_kind(row)] == row["timestamp"]:
                rows.append(row | {"timestamp": 0.0})
        events = {at - first: rows for at, rows in self.events.items() if first <= at < stop}
        return Language(rows, events)

    def earlier(self, seconds: float) -> "Language":
        """With rows that begin to hold so much earlier."""
        rows = [
            row | {"timestamp": float(np.float32(max(0.0, row["timestamp"] - seconds)))}
            for row in self.persistent
        ]
        return Language(rows if seconds else self.persistent, self.events)

    def thinned(self, step: int) -> "Language":
        """With every `step`-th frame kept: events move to the last kept frame up to theirs."""
        events: dict[int, list[dict]] = {}
        for frame, rows in self.events.items():
            events.setdefault(frame // step, []).extend(rows)
        return Language(self.persistent, events)

    def renamed(self, cameras: Mapping[str, str], where: str, hint: str) -> "Language":
        """With the cameras' new names.

        Args:
            cameras: Feature -> its new name, of all that are kept.
            where: The beginning of an error.
            hint: Its end: how to leave the annotations out.

        Raises:
            ValueError: For a row about a camera that is not kept.
        """

        def new(row: dict) -> dict:
            camera = row["camera"]
            if camera is not None and camera not in cameras:
                raise ValueError(
                    f"{where}: a language row of style {row['style']} is about {camera}, which is "
                    f"not kept; keep it, or leave the annotations out: {hint}"
                )
            return row if camera is None else row | {"camera": cameras[camera]}

        events = {frame: [new(row) for row in rows] for frame, rows in self.events.items()}
        return Language([new(row) for row in self.persistent], events)

    def columns(self, length: int) -> dict[str, pa.Array]:
        """The columns of a data file for an episode of T = `length` frames."""
        persistent = pa.array([_stored(self.persistent)], TYPES[PERSISTENT])
        events = [_stored(self.events.get(frame, [])) for frame in range(length)]
        return {
            PERSISTENT: persistent.take(pa.array(np.zeros(length, np.int64))),
            EVENTS: pa.array(events, TYPES[EVENTS]),
        }

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps({"persistent": self.persistent, "events": list(self.events.items())})

    @classmethod
    def from_json(cls, text: str) -> "Language":
        """The inverse of `to_json`."""
        data = atomic.parse_json(text)
        return cls(data["persistent"], {int(frame): rows for frame, rows in data["events"]})


def from_columns(columns: Mapping[str, pa.Array | pa.ChunkedArray], where: str) -> Language:
    """The annotations of one episode, from what its frames have of those of `COLUMNS` that exist.

    lerobot's annotator lets Arrow guess the types, so that they differ from file to file.

    Raises:
        ValueError: If the persistent rows of two frames differ, or a row has no role.
    """
    persistent: list[dict] = []
    if PERSISTENT in columns:
        column = columns[PERSISTENT]
        first = column.slice(0, 1)
        for frame in range(1, len(column)):
            if not first.equals(column.slice(frame, 1)):
                raise ValueError(
                    f"{where}: {PERSISTENT} at frame {frame} differs from that at frame 0, but "
                    "these rows belong to the whole episode; annotate it again (lerobot-annotate)"
                )
        persistent = _read(first.to_pylist()[0], f"{where}: {PERSISTENT}", ("timestamp",))
    events = {}
    if EVENTS in columns:
        for frame, rows in enumerate(columns[EVENTS].to_pylist()):
            if rows:
                events[frame] = _read(rows, f"{where}: {EVENTS} at frame {frame}", ())
    return Language(persistent, events)


def check_style(style: str, has_language: bool, where: str) -> None:
    """Raise ValueError unless frames of the dataset can take their instruction from `style`."""
    if style not in INSTRUCTION_STYLES:
        raise ValueError(
            f"instruction_style is '{style}', allowed: {', '.join(INSTRUCTION_STYLES)}"
        )
    if not has_language:
        raise ValueError(
            f"instruction_style is '{style}', but {where} has no column {PERSISTENT}; annotate it "
            "(lerobot-annotate), or leave instruction_style out"
        )


def describe_row(row: Mapping) -> str:
    """A row as a line of text."""
    calls = row["tool_calls"]
    parts = [row["content"]] if row["content"] is not None else []
    return " ".join([*parts, *_texts(calls or [])])


def _kind(row: Mapping) -> tuple:
    """Rows of one kind supersede each other."""
    return row["style"], row["role"], row["camera"]


def _frame(row: Mapping, fps: float) -> float:
    """When a row begins to hold, in frames: a whole number where it does with a frame."""
    frame = row["timestamp"] * fps
    return round(frame) if abs(frame - round(frame)) < _FRAME_TOLERANCE else frame


def _rephrased(wordings: Sequence[str], row: int) -> str:
    """The wording that lerobot's `render_sample` takes for a row of the dataset."""
    if not wordings:
        return ""
    digest = hashlib.blake2b(f"{REPHRASINGS}:{row}".encode(), digest_size=8).digest()
    return wordings[int.from_bytes(digest, "big") % len(wordings)]


def _stored(rows: Sequence[dict]) -> list[dict]:
    return [
        row if row["tool_calls"] is None else row | {"tool_calls": _texts(row["tool_calls"])}
        for row in rows
    ]


def _texts(calls: Sequence) -> list[str]:
    return [json.dumps(call, ensure_ascii=False) for call in calls]


def _read(rows: Sequence[Mapping] | None, where: str, more: Sequence[str]) -> list[dict]:
    """Rows as they are stored, by whomever; None, of a recording without annotations, is none."""
    read = []
    for row in rows or []:
        lacking = [name for name in ("role", *more) if row.get(name) is None]
        if lacking:
            raise ValueError(f"{where}: a row has no {lacking[0]}: {row}")
        entry = {name: row.get(name, default) for name, default in _FIELDS.items()}
        calls = entry["tool_calls"]
        entry["tool_calls"] = None if calls is None else [_parsed(call) for call in calls]
        read.append(entry | {name: float(np.float32(row[name])) for name in more})
    return read


def _parsed(call):
    """JSON text as what it stands for."""
    try:
        return atomic.parse_json(call) if isinstance(call, str) else call
    except ValueError:
        return call
