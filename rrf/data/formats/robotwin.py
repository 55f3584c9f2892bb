"""RoboTwin episodes, one HDF5 file each, in both layouts.

RoboTwin 2.0, `data/episode0.hdf5`:

    joint_action/{left_arm, left_gripper, right_arm, right_gripper, vector}   [T, ...]
    endpose/{left_endpose, left_gripper, right_endpose, right_gripper}        [T, ...]
    observation/<camera>/{rgb, intrinsic_cv, extrinsic_cv, cam2world_gl, ...} [T, ...]
    ../instructions/episode0.json       {"seen": [...], "unseen": [...]}

`data_format_version` v1.0, `data/episode_0000000.hdf5`:

    state/{left,right}_{arm_joint_states, ee_joint_states, ee_poses}          [T, ...]
    action/...                          the same names: the state one frame later
    vision/<camera>/{colors, depths, intrinsic_matrix, ...}
    instructions                        a JSON list of texts; additional_info/frequency in Hz

Layouts: https://github.com/RoboTwin-Platform/RoboTwin, envs/utils/pkl2hdf5.py. The first layout
records no action: `joint_action` is the state. The action is the state one frame later, which is
offered under the keys `next_joint_action/...` and `next_endpose/...`. The last frame has no next
state. It is dropped, as in RoboTwin's own training scripts, or held (option `last_frame`). Poses
are position and quaternion, WXYZ. Point clouds are not offered. RoboTwin 1.0 wrote one pickle per
frame; those are refused.

Images are JPEG, padded with zeros to one length. OpenCV wrote them from RGB as if it were BGR, so
every other decoder swaps red and blue. Later files are standard and contain "XPL-RGB1" in a JPEG
comment. Standard images are passed on as they are; the others are decoded and corrected.

Legend: T frames of an episode, H W image height and width.
"""

import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf import atomic
from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5
from rrf.data.formats.json_files import read_object
from rrf.data.formats.padded_images import decode_all, describe_padded, is_padded, read_padded
from rrf.data.raw import RawEpisode, Recording
from rrf.data.schema import EncodedImages

_NEXT = "next_"
_SHIFTED = ("joint_action", "endpose")
_SECOND_LAYOUT = ("state", "action", "vision")
_STANDARD = b"\xff\xfe\x00\x0aXPL-RGB1"  # a comment segment of 10 bytes, length included
_HEADER_BYTES = 4096

Column = np.ndarray | EncodedImages


@configclass
class RoboTwinOptions(Cfg):
    """Options of the format robotwin."""

    pattern: str = "**/episode*.hdf5"
    """Which files in the directory."""
    instructions: typing.Literal["seen", "unseen"] = "seen"
    """Which list of instructions/episodeN.json is used. Its first entry is taken."""
    instruction: str | None = None
    """The instruction of all episodes, instead of the recorded ones."""
    last_frame: typing.Literal["drop", "hold"] = "drop"
    """What to do with the last frame of an episode without recorded actions: drop it, or act to
    stay there."""
    jpeg_channels: typing.Literal["auto", "rgb", "bgr"] = "auto"
    """Channel order in the JPEGs; auto looks for the comment that marks standard files."""


class RoboTwinSource:
    """Reads RoboTwin episodes; each file is a recording."""

    def __init__(self, path: Path, options: dict):
        self._options = RoboTwinOptions.from_dict(options)
        self._path = Path(path)

    def recordings(self) -> list[Recording]:
        """One recording per episode, in the order of their numbers.

        Raises:
            ValueError: If there are none, there are only pickles, or instructions are missing.
        """
        recordings = []
        for path in self._files():
            with hdf5.open_file(path) as file:
                needs_file = _is_first_layout(file, path) and self._options.instruction is None
            paths = (path, _instruction_file(path)) if needs_file else (path,)
            recordings.append(Recording(hdf5.recording_name(path, self._path), paths, 1))
        return recordings

    def keys(self) -> dict[str, str]:
        """The keys of the first file that have an entry per frame, with their types."""
        path = self._files()[0]
        keys = {}
        with hdf5.open_file(path) as file:
            for key, dataset in _offered(file, path).items():
                if _is_encoded(key, dataset):
                    keys[key] = describe_padded(dataset, key, str(path))
                else:
                    keys[key] = str(hdf5.describe(dataset))
        return keys

    def episodes(self, recording: Recording, keys: Sequence[str]) -> Iterator[RawEpisode]:
        """The episode of a file.

        Raises:
            ValueError: For damaged data; the message names file, key and, for images, frame.
        """
        path = recording.paths[0]
        with hdf5.open_file(path) as file:
            known = _offered(file, path)
            for key in keys:
                if key not in known:
                    raise hdf5.unknown_key(key, known, str(path))
            num_frames = _num_frames(file, path)
            if _is_first_layout(file, path) and self._options.last_frame == "drop":
                rows = slice(0, num_frames - 1)
            else:
                rows = slice(0, num_frames)
            columns = []
            for key in keys:
                _check_length(key, known[key], num_frames, path)
                columns.append((key, self._column(file, key, known[key], rows, str(path))))
            arrays, images = hdf5.arrays_and_images(columns, str(path))
            instruction = self._options.instruction or self._instruction(file, path)
            yield RawEpisode(arrays, images, instruction, str(path), _fps(file, str(path)))

    def _files(self) -> list[Path]:
        return sorted(hdf5.find_files(self._path, self._options.pattern), key=hdf5.by_number)

    def _column(
        self, file: h5py.File, key: str, dataset: h5py.Dataset, rows: slice, where: str
    ) -> Column:
        if key.startswith(_NEXT):
            values = hdf5.read(file, key.removeprefix(_NEXT), where)
            return np.concatenate([values[1:], values[-1:]])[rows]
        if not _is_encoded(key, dataset):
            return hdf5.channels_last(hdf5.read(file, key, where, rows))
        encoded = read_padded(dataset, key, where, rows)
        standard = [self._is_standard(blob) for blob in encoded.blobs]
        if all(standard):
            return encoded
        images = decode_all(encoded.blobs, f"{where}: {key}")
        swapped = ~np.array(standard)
        images[swapped] = images[swapped][..., ::-1]
        return images

    def _is_standard(self, blob: bytes) -> bool:
        """Whether a decoder returns red in the first channel."""
        if self._options.jpeg_channels == "auto":
            return _STANDARD in blob[:_HEADER_BYTES]
        return self._options.jpeg_channels == "rgb"

    def _instruction(self, file: h5py.File, path: Path) -> str:
        if _is_first_layout(file, path):
            json_path = _instruction_file(path)
            texts, where = read_object(json_path).get(self._options.instructions), str(json_path)
        else:
            texts, where = _recorded_instructions(file, str(path)), f"{path}: instructions"
        if isinstance(texts, list) and texts and isinstance(texts[0], str) and texts[0].strip():
            return texts[0]
        raise ValueError(
            f"{where} has no {self._options.instructions} instruction; set the option instructions "
            "(seen or unseen) or instruction"
        )


def _is_first_layout(file: h5py.File, path: Path) -> bool:
    names = hdf5.names(file, str(path))
    if "joint_action" in names:
        return True
    if "state" in names and "action" in names:
        return False
    raise ValueError(
        f"{path} has neither joint_action nor state and action, so it is not a RoboTwin episode; "
        f"found: {', '.join(names) or 'nothing'}"
    )


def _offered(file: h5py.File, path: Path) -> dict[str, h5py.Dataset]:
    """The datasets that have an entry per frame, by key."""
    is_first = _is_first_layout(file, path)
    offered = {}
    for key, dataset in hdf5.list_datasets(file, str(path)).items():
        top, name = key.split("/")[0], key.split("/")[-1]
        is_other = top == "pointcloud" if is_first else top not in _SECOND_LAYOUT
        is_fixed = name == "shape" or (name.endswith("_matrix") and len(dataset.shape or ()) == 2)
        if is_other or is_fixed:
            continue
        if _is_encoded(key, dataset) or hdf5.describe(dataset) is not None:
            offered[key] = dataset
            if is_first and top in _SHIFTED:
                offered[_NEXT + key] = dataset
    return offered


def _num_frames(file: h5py.File, path: Path) -> int:
    """T, the length of the joint states."""
    first = "joint_action" if _is_first_layout(file, path) else "state"
    lengths = [len(d) for key, d in _offered(file, path).items() if key.split("/")[0] == first]
    num_frames = lengths[0] if lengths else 0
    if num_frames < 2:
        raise ValueError(f"{path}: {first} holds {num_frames} frames, an episode needs two or more")
    return num_frames


def _check_length(key: str, dataset: h5py.Dataset, num_frames: int, path: Path) -> None:
    if len(dataset) != num_frames:
        raise ValueError(
            f"{path}: {key} has {len(dataset)} frames, the joint states have {num_frames}; the "
            "file was cut short or put together from two"
        )


def _is_encoded(key: str, dataset: h5py.Dataset) -> bool:
    name = key.split("/")[-1]
    return (name == "colors" or "rgb" in name) and is_padded(dataset)


def _instruction_file(path: Path) -> Path:
    for directory in (path.parent.parent, path.parent):
        file = directory / "instructions" / f"{path.stem}.json"
        if file.is_file():
            return file
    raise ValueError(
        f"{path} has no ../instructions/{path.stem}.json; copy it too, or set the option "
        "instruction"
    )


def _recorded_instructions(file: h5py.File, where: str) -> list | None:
    for key in ("instructions", "instruction"):
        if hdf5.find(file, key, where) is not None:
            texts = [str(value) for value in np.ravel(hdf5.read(file, key, where))]
            if len(texts) != 1 or not texts[0].lstrip().startswith("["):
                return texts
            try:
                return atomic.parse_json(texts[0])
            except ValueError as error:
                raise ValueError(f"{where}: {key} is not JSON ({error})") from error
    return None


def _fps(file: h5py.File, where: str) -> float | None:
    key = "additional_info/frequency"
    if hdf5.find(file, key, where) is None:
        return None
    return hdf5.number(hdf5.read(file, key, where), f"{where}: {key}")
