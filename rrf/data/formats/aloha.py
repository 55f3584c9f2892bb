"""ALOHA and ACT HDF5: episode_<i>.hdf5, one episode in a file.

    /                attrs: sim (bool), compress (bool)
        action f32[T, 14]   observations/{qpos, qvel, effort} f32[T, 14]   base_action f32[T, 2]
        observations/images/<camera>   u8[T, H, W, 3], or JPEG: u8[T, L] padded with zeros
        compress_len [cameras, T]      bytes of each JPEG before padding

Layout: record_episodes.py of https://github.com/tonyzhaozh/aloha and its descendants, which also
write JPEG as byte strings or as arrays of variable length. JPEG and PNG stay as they are, without
the padding. The file does not say in which order the rows of `compress_len` are, so they only serve
as a check: each image must be as long as one camera's entry for that frame.

Some recorders give RGB arrays to OpenCV, which takes them for BGR. A viewer then shows red as blue.
The option `channels: bgr` swaps the channels back, at the price of decoding.

The instruction is an attribute of the file (instruction, language_instruction, task) or a dataset
(language_raw, instruction). The frame rate is the attribute fps; usually it is 50, because ALOHA's
control step is 0.02 s.
"""

import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf.config import configclass
from rrf.data.formats import hdf5
from rrf.data.formats.hdf5_shapes import ShapeOptions, describe, shaped
from rrf.data.formats.padded_images import decode_all, describe_padded, is_padded, read_padded
from rrf.data.raw import RawEpisode, Recording
from rrf.data.schema import EncodedImages

_FPS = 50.0
_IMAGES = "observations/images/"
_SAID_IN_ATTRIBUTES = ("instruction", "language_instruction", "task")
_SAID_IN_DATASETS = ("language_raw", "instruction")
_NOT_PER_FRAME = ("compress_len", *_SAID_IN_DATASETS)


@configclass
class AlohaOptions(ShapeOptions):
    """`source.options` of the format aloha."""

    pattern: str = "**/episode_*.hdf5"
    """Which files of a directory; they are read in the order of their numbers."""
    channels: typing.Literal["rgb", "bgr"] = "rgb"
    """Order of the colours in the files."""


class AlohaSource:
    """Episodes of ALOHA. A recording is one file, which holds one episode."""

    def __init__(self, path: Path, options: dict):
        self.path = Path(path)
        self.options = AlohaOptions.from_dict(options)
        self._has_one_rate = True

    def allow_rates(self) -> None:
        """See `rrf.data.raw.SeveralRates`."""
        self._has_one_rate = False

    def recordings(self) -> list[Recording]:
        return [
            Recording(hdf5.recording_name(path, self.path), (path,), 1) for path in self._files()
        ]

    def keys(self) -> dict[str, str]:
        path = self._files()[0]
        with hdf5.open_file(path) as file:
            return {
                key: _describe(dataset, key, str(path), self.options)
                for key, dataset in _frames(file, str(path)).items()
            }

    def episodes(self, recording: Recording, keys: Sequence[str]) -> Iterator[RawEpisode]:
        (path,) = recording.paths
        where = str(path)
        with hdf5.open_file(path) as file:
            known = _frames(file, where)
            for key in keys:
                if key not in known:
                    raise hdf5.unknown_key(key, known, where)
            columns = ((key, self._read(file, known[key], key, where)) for key in keys)
            arrays, images = hdf5.arrays_and_images(columns, where, self._has_one_rate)
            fps = hdf5.number_attribute((file,), "fps", where)
            yield RawEpisode(arrays, images, _instruction(file, where), where, fps, usual_fps=_FPS)

    def _files(self) -> list[Path]:
        return sorted(hdf5.find_files(self.path, self.options.pattern), key=hdf5.by_number)

    def _read(
        self, file: h5py.File, dataset: h5py.Dataset, key: str, where: str
    ) -> np.ndarray | EncodedImages:
        values = _read(file, dataset, key, where, self.options)
        if not key.startswith(_IMAGES) or self.options.channels == "rgb":
            return values
        if isinstance(values, EncodedImages):
            values = decode_all(values.blobs, f"{where}: {key}")
        return np.ascontiguousarray(values[..., ::-1])


def _instruction(file: h5py.File, where: str) -> str | None:
    for name in _SAID_IN_ATTRIBUTES:
        said = hdf5.text_attribute((file,), name, where)
        if said is not None:
            return said
    for name in _SAID_IN_DATASETS:
        if hdf5.find(file, name, where) is not None:
            said = hdf5.read(file, name, where)
            return hdf5.text(said if said.shape else said.item(), f"{where}: {name}")
    return None


def _frames(file: h5py.File, where: str) -> dict[str, h5py.Dataset]:
    """The datasets that have a value per frame, by key."""
    return {
        key: dataset
        for key, dataset in hdf5.list_datasets(file, where).items()
        if key not in _NOT_PER_FRAME
        and (hdf5.describe(dataset) is not None or _is_encoded(dataset, key))
    }


def _is_encoded(dataset: h5py.Dataset, key: str) -> bool:
    return key.startswith(_IMAGES) and is_padded(dataset)


def _describe(dataset: h5py.Dataset, key: str, where: str, options: ShapeOptions) -> str:
    if _is_encoded(dataset, key):
        return describe_padded(dataset, key, where)
    return str(describe(dataset, options))


def _read(
    file: h5py.File, dataset: h5py.Dataset, key: str, where: str, options: ShapeOptions
) -> np.ndarray | EncodedImages:
    if not _is_encoded(dataset, key):
        actions = hdf5.find(file, "action", where)
        num_actions = len(actions) if isinstance(actions, h5py.Dataset) and actions.shape else None
        return shaped(hdf5.read(file, key, where), options, num_actions, f"{where}: {key}")
    images = read_padded(dataset, key, where)
    if hdf5.find(file, "compress_len", where) is not None:
        _check_lengths(images, hdf5.read(file, "compress_len", where), key, where)
    return images


def _check_lengths(images: EncodedImages, lengths: np.ndarray, key: str, where: str) -> None:
    lengths = np.atleast_2d(lengths)
    if lengths.ndim != 2 or lengths.shape[1] != len(images):
        raise ValueError(
            f"{where}: compress_len has shape {list(lengths.shape)}, "
            f"expected [cameras, {len(images)}] as {key} has {len(images)} frames"
        )
    for frame, blob in enumerate(images.blobs):
        if len(blob) not in lengths[:, frame]:
            raise ValueError(
                f"{where}: {key} at frame {frame} has {len(blob)} bytes, "
                f"but compress_len says {lengths[:, frame].tolist()}"
            )
