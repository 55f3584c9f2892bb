"""LeRobot v2.0, v2.1 (also GR00T's variant) and v3.0 directories as recordings.

Keys are the names of features ("observation.state", "observation.images.front") and of any other
column. Depth maps are numbers in m or mm (see `rrf.data.dataset.depth`), not images. The two
columns of language annotations become `RawEpisode.language`. If there is a meta/modality.json, its
names are keys, too. They stand for slices and cameras: "state.left_arm" for dimensions 0..6 of
observation.state, "video.ego_view" for a camera.

What these directories get wrong, and what happens then:

    a key of info.json is not on disk      `keys` says so; ValueError when the key is read
    the video is longer than the table     the frames at its end are dropped, with a warning, unless
                                           they are many and it has another rate too: ValueError
    the video is shorter                   ValueError with both counts; `to_timestamp` is not asked
    vectors written as JSON text           converted to float64, with a warning
    time stamps that do not begin at 0     frame i of the video belongs to row i regardless
    time stamps that disagree with fps     the time stamps decide, with a warning; `source.fps` of
                                           the config decides over both
    the folder has another name            ValueError with the command that renames it
    a row of another length                ValueError naming the row
    the instruction changes in an episode  the first is used, with a warning
    time stamps stop or go back            a warning, and a finding of validation (`timestamps`)
    rows are not in the order of frames    a finding of validation (`frame_order`)
    numbers, pixels or a count of frames   a finding of validation (`source_statistics`)
    that the statistics, or the list of
    episodes, contradict

Warnings collect in `LeRobotSource.warnings`. Legend: T frames of an episode.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.config import Cfg, configclass, did_you_mean
from rrf.data.dataset import layout
from rrf.data.dataset.layout import depth_map, is_depth
from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.lerobot_audit import audit_lerobot
from rrf.data.formats.lerobot_columns import annotations, column_values, part_of
from rrf.data.formats.lerobot_files import EpisodePlace, read_index
from rrf.data.formats.lerobot_statistics import (
    contradiction,
    out_of_bounds,
    pixel_contradiction,
    read_all_statistics,
    read_statistics,
)
from rrf.data.formats.lerobot_videos import EpisodeVideos, image_size
from rrf.data.formats.misnamed_folder import rename_command
from rrf.data.formats.modality import Modality, Part, read_modality
from rrf.data.formats.source_audit import NOT_ON_DISK
from rrf.data.formats.time_stamps import read_time_stamps
from rrf.data.language import COLUMNS, DTYPE, Language
from rrf.data.raw import OneByOne, RawEpisode, Recording
from rrf.data.schema import EncodedImages

_GROOT_TASKS = ("annotation.human.action.task_description", "human.action.task_description")


@configclass
class LeRobotOptions(Cfg):
    """Options of the format lerobot."""

    instruction_key: str | None = None
    """Column with the instruction, as text or as an index of the list of tasks. The default is
    GR00T's [annotation.]human.action.task_description if it exists, otherwise task_index; where
    they say nothing, the list of episodes."""


class LeRobotSource(OneByOne):
    """Reads one LeRobot directory.

    Args:
        path: The directory with meta/, data/ and videos/.
        options: Fields of `LeRobotOptions`.

    Raises:
        ValueError: For an unknown option, and as `read_index` and `read_modality` do.
    """

    def __init__(self, path: Path, options: dict):
        self._options = LeRobotOptions.from_dict(options)
        self._root = Path(path)
        self._index = read_index(self._root)
        modality = read_modality(self._root) or Modality({}, {}, {}, {})
        self._parts = {f"state.{name}": part for name, part in modality.state.items()}
        self._parts |= {f"action.{name}": part for name, part in modality.action.items()}
        self._aliases = {f"video.{name}": key for name, key in modality.video.items()}
        self._aliases |= {f"annotation.{name}": key for name, key in modality.annotation.items()}
        self._warnings = dict.fromkeys(self._index.warnings)
        self._videos = EpisodeVideos(self._index, self._warn)
        self._chosen_fps: float | None = None

    def set_fps(self, fps: float) -> None:
        """Decide over the time stamps and info.json; see `rrf.data.raw.Timed`."""
        self._chosen_fps = fps

    @property
    def warnings(self) -> list[str]:
        """What was noticed so far, naming file and episode.

        Opening the same directory again repeats the warnings about the whole directory.
        """
        return list(self._warnings)

    def audit(self) -> list[str]:
        """Claims of the metadata that do not match the files."""
        return audit_lerobot(self._index)

    @property
    def depth_keys(self) -> list[str]:
        """See `rrf.data.raw.Annotated`."""
        return [key for key, feature in self._index.features.items() if is_depth(feature)]

    @property
    def tools(self) -> list[dict]:
        """See `rrf.data.raw.Annotated`."""
        return list(self._index.info.get("tools") or [])

    def recordings(self) -> list[Recording]:
        """One recording per data file: an episode in v2.0 and v2.1, many in v3.0."""
        recordings = []
        for name, places in self._index.recordings.items():
            videos = {video.path for place in places for video in place.videos.values()}
            paths = (places[0].data, *sorted(path for path in videos if path.is_file()))
            recordings.append(Recording(name, paths, len(places)))
        return recordings

    def keys(self) -> dict[str, str]:
        """Features, other columns and names of modality.json, with their types in the first data
        file.

        A type ends in "(not on disk)" if info.json promises the key but it does not exist.
        """
        return dict(self._types)

    def readers(
        self, recording: Recording, keys: Sequence[str]
    ) -> Iterator[Callable[[], RawEpisode]]:
        """Of the episodes of a data file, in order; see `rrf.data.raw.OneByOne`."""
        places = self._index.recordings.get(recording.name)
        if places is None:
            raise ValueError(f"{self._root} has no recording '{recording.name}'")
        for key in keys:
            self._check_key(key, places[0])
        table = self._read_table(places[0].data, keys)
        for place in places:
            yield functools.partial(self._read_episode, table, place, keys)

    def episode(self, number: int, keys: Sequence[str]) -> RawEpisode:
        """One episode, by its number in the dataset. Raises ValueError as `episodes` does."""
        for places in self._index.recordings.values():
            for place in places:
                if place.number == number:
                    for key in keys:
                        self._check_key(key, place)
                    return self._read_episode(self._read_table(place.data, keys), place, keys)
        known = sorted(place.number for ps in self._index.recordings.values() for place in ps)
        held = f"{known[0]} to {known[-1]}" if len(known) > 1 else str(known[0])
        if len(known) <= known[-1] - known[0]:
            held = f"{len(known)} from {held}"
        raise ValueError(f"{self._root} has no episode {number}, only {held}")

    @functools.cached_property
    def _types(self) -> dict[str, str]:
        first = next(iter(self._index.recordings.values()))[0]
        table = arrow.read_parquet(first.data, arrow.read_schema(first.data).names, num_rows=1)
        types = {}
        for key, feature in self._index.features.items():
            if is_depth(feature):
                kind = depth_map(key, feature)
                types[key] = f"{kind.dtype}{list(kind.size)}"
            elif feature.get("dtype") in ("video", "image"):
                types[key] = f"image{list(image_size(feature))}"
            else:
                types[key] = f"{feature.get('dtype')}{feature['shape']}"
            if key not in table.column_names and not self._has_video(key):
                types[key] += f" {NOT_ON_DISK}"
        for key in table.column_names:
            types[key] = self._type_of(table[key], key, types.get(key), _where(first))
        for name, part in self._parts.items():
            if part.original_key in types:
                text = re.sub(r"\[.*?\]", f"[{part.end - part.start}]", types[part.original_key])
                types.setdefault(name, text)
        for name, key in self._aliases.items():
            if key in types:
                types.setdefault(name, types[key])
        return types

    def _type_of(self, column: pa.ChunkedArray, key: str, declared: str | None, where: str) -> str:
        """The type of a column; the declared type if the values tell nothing or are damaged."""
        if key in COLUMNS:
            return DTYPE
        if arrow.is_image(column.type):
            return declared or "image"
        try:
            values = self._values(column, key, where)
        except ValueError:  # reported when the key is read
            return declared or str(column.type)
        assert isinstance(values, np.ndarray)
        return "text" if values.dtype.kind == "U" else f"{values.dtype}{list(values.shape[1:])}"

    def _has_video(self, key: str) -> bool:
        return any(
            key in place.videos and place.videos[key].path.is_file()
            for places in self._index.recordings.values()
            for place in places
        )

    def _check_key(self, key: str, place: EpisodePlace) -> None:
        if key not in self._types:
            raise ValueError(f"{self._root} has no key '{key}'{did_you_mean(key, self._types)}")
        if self._types[key].endswith(NOT_ON_DISK):
            video = place.videos.get(self._aliases.get(key, key))
            what = f"the first file would be {video.path}" if video else "no data file has it"
            command = rename_command(self._root, video.path) if video else None
            if command is not None:
                raise ValueError(
                    f"{self._root}: '{key}' is declared in meta/info.json but not on disk "
                    f"({what}). It lies in a folder of another name; rename that: {command}"
                )
            there = [name for name, text in self._types.items() if not text.endswith(NOT_ON_DISK)]
            raise ValueError(
                f"{self._root}: '{key}' is declared in meta/info.json but not on disk ({what})"
                f"{did_you_mean(key, there)}"
            )

    def _column_of(self, key: str) -> tuple[str, Part | None]:
        """The feature that a key names, or of which it names a part."""
        if key in self._index.features:
            return key, None
        part = self._parts.get(key)
        return (part.original_key, part) if part else (self._aliases.get(key, key), None)

    def _read_table(self, path: Path, keys: Sequence[str]) -> pa.Table:
        """The columns that the keys, the instruction and the checks need."""
        columns = [self._column_of(key)[0] for key in keys]
        videos = [name for name, f in self._index.features.items() if f.get("dtype") == "video"]
        required = [column for column in columns if column not in videos]
        if self._index.has_shared_files:
            required.append("episode_index")
        if self._options.instruction_key is not None:
            required.append(self._column_of(self._options.instruction_key)[0])
        optional = ("timestamp", "frame_index", *_GROOT_TASKS, "task_index")
        return arrow.read_parquet(path, required, optional)

    def _read_episode(
        self, table: pa.Table, place: EpisodePlace, keys: Sequence[str]
    ) -> RawEpisode:
        where = _where(place)
        if self._index.has_shared_files:
            table = self._rows_of(table, place.number, where)
        length = table.num_rows
        if length == 0:
            raise ValueError(f"{where} has no frames")
        fps, breaks = self._fps(table, where)
        problems = [("timestamps", text) for text in breaks] + self._disorder(table, where)
        if length != place.length:
            count = f"has {length} frames, the list of episodes says {place.length}"
            self._warn(f"{where} {count}")
            problems.append(("source_statistics", f"{place.data.name} {count}"))
        arrays: dict[str, np.ndarray] = {}
        images: dict[str, np.ndarray | EncodedImages] = {}
        for key in keys:
            column, part = self._column_of(key)
            if column in COLUMNS:
                continue
            if column not in table.column_names:
                values = self._videos.read(place, column, length, self._chosen_fps or fps, where)
                if is_depth(self._index.features[column]):
                    arrays[key] = values
                else:
                    images[key] = values
                    problems += self._wrong_pixels(place.number, column, values)
                continue
            values = self._values(table[column], column, where)
            if isinstance(values, EncodedImages):
                images[key] = values
            else:
                problems += self._contradictions(place.number, column, values)
                arrays[key] = part_of(values, part, f"{where}: {key}") if part else values
        return RawEpisode(
            arrays=arrays,
            images=images,
            instruction=self._instruction(table, where) or self._listed_instruction(place),
            source=where,
            fps=fps,
            declared_fps=None if fps == self._index.fps else self._index.fps,
            problems=list(dict.fromkeys(problems)),
            language=self._language(table, keys, where),
        )

    @functools.cached_property
    def _statistics(self) -> dict[int, dict]:
        return read_statistics(self._index)

    @functools.cached_property
    def _all_statistics(self) -> dict[str, dict]:
        return read_all_statistics(self._index)

    def _contradictions(
        self, number: int, column: str, values: np.ndarray
    ) -> Iterator[tuple[str, str]]:
        if values.dtype.kind not in "iuf":
            return
        said = self._statistics.get(number, {}).get(column)
        if isinstance(said, dict):
            text = contradiction(values, said)
            if text is not None:
                yield "source_statistics", f"{column} {text}"
        elif column in self._all_statistics:
            text = out_of_bounds(values, self._all_statistics[column])
            if text is not None:
                yield "source_statistics", f"{column} {text}"

    def _wrong_pixels(
        self, number: int, column: str, images: np.ndarray
    ) -> Iterator[tuple[str, str]]:
        said = self._statistics.get(number, {}).get(column)
        text = pixel_contradiction(images, said) if isinstance(said, dict) else None
        if text is not None:
            yield "source_statistics", f"{column} {text}"

    def _disorder(self, table: pa.Table, where: str) -> list[tuple[str, str]]:
        """Where rows are not in the order of their frames."""
        if "frame_index" not in table.column_names:
            return []
        frames = np.asarray(self._values(table["frame_index"], "frame_index", where)).ravel()
        breaks = np.flatnonzero(frames[1:] != frames[:-1] + 1) if frames.dtype.kind in "iuf" else []
        return [
            (
                "frame_order",
                f"frame_index of row {row + 1} is {frames[row + 1]}, after {frames[row]}",
            )
            for row in breaks[:1]
        ]

    def _language(self, table: pa.Table, keys: Sequence[str], where: str) -> Language | None:
        columns = {key: table[key] for key in COLUMNS if key in keys}
        if not columns:
            return None
        start_s = 0.0
        if "timestamp" in table.column_names:
            times = np.asarray(self._values(table["timestamp"], "timestamp", where))
            start_s = float(times.flat[0])
        return annotations(columns, start_s, {self._column_of(k)[0]: k for k in keys}, where)

    def _fps(self, table: pa.Table, where: str) -> tuple[float, tuple[str, ...]]:
        """Frames per second of the rows, as the time stamps tell, else as info.json says; and where
        time does not go on evenly.
        """
        declared = self._index.fps
        if "timestamp" not in table.column_names:
            return declared, ()
        times = self._values(table["timestamp"], "timestamp", where)
        stamps = read_time_stamps(np.asarray(times), declared)
        for problem in stamps.problems:
            self._warn(f"{where}: {problem}")
        if stamps.fps is None:
            return declared, stamps.breaks
        taken = (
            f"{stamps.fps:.4g} is taken. To choose, write in the config source: {{fps: "
            f"{stamps.fps:.4g}}} (the time stamps are right) or source: {{fps: {declared:g}}} "
            "(info.json is)"
        )
        if self._chosen_fps is not None:
            taken = f"source.fps says {self._chosen_fps:g}, which is taken"
        self._warn(
            f"{self._root / layout.INFO}: timestamp grows at {stamps.fps:.4g} frames/s, "
            f"{declared:g} are declared; {taken}"
        )
        return stamps.fps, stamps.breaks

    def _rows_of(self, table: pa.Table, number: int, where: str) -> pa.Table:
        rows = np.flatnonzero(
            self._values(table["episode_index"], "episode_index", where) == number
        )
        if len(rows) and rows[-1] - rows[0] + 1 != len(rows):
            raise ValueError(
                f"{where}: rows {rows[0]} to {rows[-1]} hold other episodes in between"
            )
        return table.slice(rows[0] if len(rows) else 0, len(rows))

    def _values(self, column: pa.ChunkedArray, key: str, where: str) -> np.ndarray | EncodedImages:
        return column_values(
            column, key, self._index.features.get(key), self._root, where, self._warn
        )

    def _instruction(self, table: pa.Table, where: str) -> str | None:
        candidates = [*_GROOT_TASKS, "task_index"]
        if self._options.instruction_key is not None:
            candidates = [self._column_of(self._options.instruction_key)[0]]
        key = next((name for name in candidates if name in table.column_names), None)
        if key is None:
            return None
        values = self._values(table[key], key, where)
        if (
            isinstance(values, EncodedImages)
            or values.size != len(values)
            or values.dtype.kind not in "iufU"
        ):
            raise ValueError(f"{where}: {key} is neither text nor an index of the list of tasks")
        values = values.ravel()
        changes = np.flatnonzero(values != values[0])
        if len(changes):
            self._warn(f"{where}: {key} changes at frame {changes[0]}; the first value is used")
        if values.dtype.kind == "U":
            return str(values[0])
        tasks, number = self._index.tasks, values[0].item()
        if tasks is None:
            return None
        if number not in tasks:
            raise ValueError(f"{where}: {key} is {number}, but no task has that index")
        return tasks[number]

    def _listed_instruction(self, place: EpisodePlace) -> str | None:
        is_chosen = self._options.instruction_key is not None
        return None if is_chosen or not place.tasks else place.tasks[0]

    def _warn(self, text: str) -> None:
        self._warnings[text] = None


def _where(place: EpisodePlace) -> str:
    return f"{place.data}:episode_{place.number}"
