"""CALVIN play data: one .npz file per step, cut into segments by language annotations.

    episode_0358482.npz           rgb_static u8[200, 200, 3], rgb_gripper u8[84, 84, 3],
                                  actions f64[7], rel_actions f64[7], robot_obs f64[15],
                                  scene_obs f64[24] (and depth_*, rgb_tactile where recorded)
    ep_start_end_ids.npy          int[N, 2], first and last step of each play session
    lang_annotations/auto_lang_ann.npy   a pickled dict: info.indx, language.ann, language.task

Layout: https://github.com/mees/calvin/tree/main/dataset. A range includes its last step. A dataset
is one split, the directory that holds `ep_start_end_ids.npy` (training or validation). Steps are
recorded at 30 Hz. Orientations are Euler angles x, y, z in rad; `robot_obs` is end-effector
position (3) and orientation (3), gripper width, 7 joint angles, last gripper action.

The annotations are read from that file without unpickling it (`rrf.data.formats.plain_pickle`), or
from JSON, `[{"start": 358482, "end": 358546, "instruction": "..."}, ...]`. The option `annotations`
names a file of either kind.

Legend: T steps of a segment, H W image height and width.
"""

import dataclasses
import functools
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rrf.config import Cfg, configclass, did_you_mean
from rrf.data.dataset.layout import path_inside
from rrf.data.formats.json_files import read_json
from rrf.data.formats.plain_pickle import read_plain
from rrf.data.memory import check_fits, no_room
from rrf.data.raw import RawEpisode, Recording

FPS = 30.0
_RANGES = "ep_start_end_ids.npy"
_ANNOTATIONS = "lang_annotations/auto_lang_ann.npy"
_SHORTER = (
    "set the option max_steps, which cuts long ranges into shorter segments, use fewer --workers, "
    "or a machine with more memory"
)
_ZIP_MAGIC = b"PK\x03\x04"


@configclass
class CalvinOptions(Cfg):
    """Options of the format calvin."""

    annotations: str | None = None
    """A file in the dataset's directory with ranges and instructions: CALVIN's auto_lang_ann.npy,
    or .json with [{start, end, instruction}], end included. By default the first, if it is there.
    """
    instruction: str | None = None
    """The instruction of all segments; ranges then come from ep_start_end_ids.npy."""
    max_steps: int | None = None
    """Cut the ranges of ep_start_end_ids.npy, which are hours long, into segments of this many
    steps."""

    def __post_init__(self):
        if self.annotations is not None and (self.instruction, self.max_steps) != (None, None):
            raise ValueError(
                "annotations already give instructions and segments; set either annotations, or "
                "instruction and max_steps"
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be positive, not {self.max_steps}")


@dataclasses.dataclass(frozen=True)
class _Segment:
    start: int
    end: int  # included
    instruction: str | None


class CalvinSource:
    """Reads one split of CALVIN. Each segment is one recording with one episode."""

    def __init__(self, path: Path, options: dict):
        self._options = CalvinOptions.from_dict(options)
        self._path = Path(path)
        if not self._path.is_dir():
            raise ValueError(f"no directory {path}; it should hold {_RANGES} and episode_*.npz")

    def recordings(self) -> list[Recording]:
        """One recording per segment, in the order of the annotations or ranges.

        Raises:
            ValueError: If there are none, or a segment's first or last step is missing.
        """
        recordings = []
        texts = () if self._annotations is None else (self._path / self._annotations,)
        for name, segment in self._segments.items():
            for step in (segment.start, segment.end):
                if not self._step(step).is_file():
                    raise ValueError(_missing(self._step(step)))
            steps = tuple(self._step(i) for i in range(segment.start, segment.end + 1))
            recordings.append(Recording(name, (*steps, *texts), num_episodes=1))
        return recordings

    def keys(self) -> dict[str, str]:
        """The arrays of the first step of the first segment."""
        return dict(self._keys)

    def episodes(self, recording: Recording, keys: Sequence[str]) -> Iterator[RawEpisode]:
        """The segment's steps, stacked.

        Raises:
            ValueError: For a damaged step; the message names the step's file and the key.
        """
        known = self._keys
        for key in keys:
            if key not in known:
                raise ValueError(f"{self._path} has no key '{key}'{did_you_mean(key, known)}")
        segment = self._segments[recording.name]
        columns = self._read_columns(segment, keys)
        yield RawEpisode(
            arrays={key: columns[key] for key in keys if not known[key].startswith("image")},
            images={key: columns[key] for key in keys if known[key].startswith("image")},
            instruction=segment.instruction,
            source=f"{self._path}:{recording.name}",
            fps=FPS,
        )

    @property
    def _annotations(self) -> str | None:
        options = self._options
        if options.annotations is None and (options.instruction, options.max_steps) == (None, None):
            return _ANNOTATIONS if (self._path / _ANNOTATIONS).is_file() else None
        return options.annotations

    def _step(self, index: int) -> Path:
        return self._path / f"episode_{index:07d}.npz"

    @functools.cached_property
    def _keys(self) -> dict[str, str]:
        first = next(iter(self._segments.values()))
        step = _read_step(self._step(first.start))
        return {
            key: f"image{list(array.shape[:2])}"
            if _is_image(array)
            else f"{array.dtype}{list(array.shape)}"
            for key, array in step.items()
        }

    @functools.cached_property
    def _segments(self) -> dict[str, _Segment]:
        if self._annotations is not None:
            segments = _read_annotations(self._path, self._annotations)
        else:
            segments = [
                _Segment(start, end, self._options.instruction)
                for start, end in _read_ranges(self._path, self._options.max_steps)
            ]
        return {
            f"segment_{number:05d}_{segment.start:07d}_{segment.end:07d}": segment
            for number, segment in enumerate(segments)
        }

    def _read_columns(self, segment: _Segment, keys: Sequence[str]) -> dict[str, np.ndarray]:
        length = segment.end - segment.start + 1
        columns: dict[str, np.ndarray] = {}
        for row in range(length):
            path = self._step(segment.start + row)
            for key, array in _read_step(path, keys).items():
                if row == 0:
                    shape, what = (length, *array.shape), f"{self._path}: {key} of {length} steps, "
                    check_fits(shape, array.itemsize, f"{what}{array.dtype}", _SHORTER)
                    columns[key] = np.empty((length, *array.shape), array.dtype)
                expected = columns[key]
                if array.dtype != expected.dtype or array.shape != expected.shape[1:]:
                    raise ValueError(
                        f"{path}: {key} is {array.dtype}{list(array.shape)}, in the segment's "
                        f"first step it was {expected.dtype}{list(expected.shape[1:])}"
                    )
                expected[row] = array
        return columns


def _is_image(array: np.ndarray) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3


def _read_step(path: Path, keys: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a step's file, all of them or the wanted ones."""
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
                raise ValueError(f"{path} is truncated or not an npz archive; copy it again")
        with np.load(path, allow_pickle=False) as step:
            for key in keys or ():
                if key not in step.files:
                    raise ValueError(f"{path} has no key '{key}'{did_you_mean(key, step.files)}")
            wanted = step.files if keys is None else keys
            return {key: _read_array(step, key, path) for key in wanted}
    except FileNotFoundError:
        raise ValueError(_missing(path)) from None
    except MemoryError as error:
        raise no_room(str(path), error) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path} is truncated or damaged ({error}); copy it again") from error


def _missing(path: Path) -> str:
    return f"{path} is missing; copy that step, or leave its segment out of the annotations"


def _read_array(step: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        array = step[key]
    except ValueError as error:
        raise ValueError(
            f"{path}: {key} cannot be read ({error}); arrays of Python objects are pickles, and "
            "loading one runs whatever code the file holds: save numbers instead"
        ) from error
    if not isinstance(array, np.ndarray):  # numpy gives the raw bytes of other archive members
        raise ValueError(f"{path}: {key} is not an array")
    return array


def _read_annotations(root: Path, name: str) -> list[_Segment]:
    path = path_inside(root, name, "option annotations")
    entries = read_json(path) if path.suffix == ".json" else _plain_entries(path)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} holds no segments; it must be [{{start, end, instruction}}, ...]")
    return [_segment(entry, f"{path}: segment {number}") for number, entry in enumerate(entries)]


def _plain_entries(path: Path) -> list[dict]:
    """The entries of CALVIN's own annotations."""
    data = read_plain(path)
    try:
        ranges, texts = data["info"]["indx"], data["language"]["ann"]
        return [
            {"start": int(start), "end": int(end), "instruction": str(text)}
            for (start, end), text in zip(ranges, texts, strict=True)
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is no annotation of CALVIN, with as many info.indx as language.ann: {error}"
        ) from error


def _segment(entry, where: str) -> _Segment:
    match entry:
        case {"start": int(start), "end": int(end), "instruction": str(instruction)}:
            if not 0 <= start <= end:
                raise ValueError(f"{where}: steps {start} to {end} are not a range")
            if not instruction.strip():
                raise ValueError(f"{where}: the instruction is empty")
            return _Segment(start, end, instruction)
    raise ValueError(f"{where} is {entry!r}, expected {{start: int, end: int, instruction: str}}")


def _read_ranges(root: Path, max_steps: int | None) -> list[tuple[int, int]]:
    path = root / _RANGES
    if not path.is_file():
        splits = [name for name in ("training", "validation") if (root / name / _RANGES).is_file()]
        hint = f"; did you mean '{root / splits[0]}'?" if splits else "; set the option annotations"
        raise ValueError(f"no {_RANGES} in {root}{hint}")
    try:
        ranges = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); it must be an npy file of int[N, 2]"
        ) from error
    if not isinstance(ranges, np.ndarray) or ranges.dtype.kind not in "iu" or ranges.ndim != 2:
        raise ValueError(f"{path} must be an npy file of int[N, 2]")
    if ranges.shape[1] != 2 or (ranges < 0).any() or (ranges[:, 0] > ranges[:, 1]).any():
        raise ValueError(f"{path} holds {ranges.tolist()[:3]}..., expected ranges [first, last]")
    if len(ranges) == 0:
        raise ValueError(f"{path} holds no ranges: the split has no episodes")
    return [
        (first, min(first + (max_steps or end - start + 1) - 1, end))
        for start, end in ranges.tolist()
        for first in range(start, end + 1, max_steps or end - start + 1)
    ]
