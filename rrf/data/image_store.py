"""Images of a LeRobot v3.0 dataset by frame number: found, decoded, and kept decoded where that
fits.

Frames are decoded when first asked for, sorted by file and position. They are kept in memory while
all decoded images of the selection fit `cache_bytes`, else in a memory-mapped file if `cache_dir`
is given; else each request decodes again, from the compressed bytes of the last few files.

Legend: N frames of the selection, B frames asked for, E episodes of the dataset.
"""

import collections
import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from rrf.data import lerobot_layout as layout
from rrf.data.images import decode_image
from rrf.data.schema import IMAGE_PREFIX
from rrf.data.video import VideoReader

CACHE_BYTES = 2 << 30
_OPEN_FILES = 8


@dataclasses.dataclass(frozen=True)
class Selection:
    """Some episodes of a dataset, their frames numbered 0..N-1 in dataset order."""

    episodes: np.ndarray  # int64, number of each selected episode in the dataset
    bounds: np.ndarray  # int64 [len(episodes) + 1], first frame of each selected episode, then N
    rows_n: np.ndarray  # int64 [N], each frame's row in the dataset

    def __len__(self) -> int:
        return len(self.rows_n)

    def episode_of(self, frame: int) -> int:
        """Position within `episodes` of the episode that `frame` belongs to."""
        return int(np.searchsorted(self.bounds, frame, side="right")) - 1


class ImageStore:
    """Decoded images of a selection.

    Args:
        root: The dataset's directory.
        info: Its info.json.
        table: Its episode table.
        selection: Which frames.
        cache_bytes: Decoded images are kept in memory while all cameras need at most this much.
        cache_dir: Where more than that is kept decoded, memory-mapped; nowhere by default.
    """

    def __init__(
        self,
        root: Path,
        info: dict,
        table: pd.DataFrame,
        selection: Selection,
        cache_bytes: int = CACHE_BYTES,
        cache_dir: Path | None = None,
    ):
        self._root, self._info, self._table, self._selection = root, info, table, selection
        self._schema = layout.schema_of(info)
        self._shape = (len(selection), *self._schema.image_size, 3)
        num_bytes = int(np.prod(self._shape)) * len(self._schema.cameras)
        self._keeps_in_memory = num_bytes <= cache_bytes
        self._cache_dir = None if self._keeps_in_memory else cache_dir
        self._decoded: dict[str, np.ndarray] = {}
        self._is_decoded: dict[str, np.ndarray] = {}
        self._open: collections.OrderedDict[tuple[str, int, int], VideoReader | pa.Array] = (
            collections.OrderedDict()
        )
        self._places: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def read(self, camera: str, frames_b: np.ndarray) -> np.ndarray:
        """uint8 [B, H, W, 3] of frames numbered within the selection."""
        if self._cache_dir is not None:
            return self._mapped(camera, self._cache_dir)[frames_b]
        if not self._keeps_in_memory:
            return self._decode(camera, frames_b)
        if camera not in self._decoded:
            self._decoded[camera] = np.empty(self._shape, np.uint8)
            self._is_decoded[camera] = np.zeros(self._shape[0], bool)
        decoded, is_decoded = self._decoded[camera], self._is_decoded[camera]
        missing = np.unique(frames_b[~is_decoded[frames_b]])
        if len(missing):
            missing = self._with_neighbours(camera, missing)
            decoded[missing] = self._decode(camera, missing)
            is_decoded[missing] = True
        return decoded[frames_b]

    def _with_neighbours(self, camera: str, missing: np.ndarray) -> np.ndarray:
        """For video all frames of the episodes asked for: decoding on is cheaper than seeking
        again.
        """
        if self._info["features"][f"{IMAGE_PREFIX}{camera}"]["dtype"] != "video":
            return missing
        bounds = self._selection.bounds.tolist()
        episodes = np.unique(np.searchsorted(bounds, missing, side="right") - 1)
        frames = np.concatenate([np.arange(bounds[e], bounds[e + 1]) for e in episodes])
        return frames[~self._is_decoded[camera][frames]]

    def _decode(self, camera: str, frames_b: np.ndarray) -> np.ndarray:
        """Decode in the order of files and positions, return in the order asked for."""
        key = f"{IMAGE_PREFIX}{camera}"
        chunk_n, file_n, row_n = self._place(key)
        chunk, file, row = chunk_n[frames_b], file_n[frames_b], row_n[frames_b]
        order = np.lexsort((row, file, chunk))
        images = np.empty((len(frames_b), *self._shape[1:]), np.uint8)
        starts = np.flatnonzero(np.diff(np.stack([chunk, file])[:, order], axis=1).any(axis=0)) + 1
        for group in np.split(order, starts):
            images[group] = self._decode_file(
                key, int(chunk[group[0]]), int(file[group[0]]), row[group], frames_b[group]
            )
        return images

    def _decode_file(
        self, key: str, chunk: int, file: int, rows: np.ndarray, frames: np.ndarray
    ) -> np.ndarray:
        """Images of ascending rows (frames of a video, or rows of a parquet file)."""
        source = self._opened(key, chunk, file)
        if isinstance(source, VideoReader):
            images = source.read(rows)
        else:
            images = [
                self._decode_blob(source[row], frame, key)
                for row, frame in zip(rows, frames, strict=True)
            ]
        expected = self._shape[1:]
        for frame, image in zip(frames, images, strict=True):
            if image.shape != expected:
                raise ValueError(
                    f"{self._where(frame)}: {key} is {list(image.shape)}, expected {list(expected)}"
                )
        return np.asarray(images)

    def _decode_blob(self, blob, frame: int, key: str) -> np.ndarray:
        try:
            return decode_image(blob.as_py() or b"")
        except ValueError as error:
            raise ValueError(f"{self._where(frame)}: {key} cannot be decoded: {error}") from error

    def _where(self, frame: int) -> str:
        number = self._selection.episode_of(frame)
        within = frame - self._selection.bounds[number]
        return f"{self._root}: episode {self._selection.episodes[number]}, frame {within}"

    def _opened(self, key: str, chunk: int, file: int):
        """A video, or the image column of a parquet file; the last few stay open."""
        place = (key, chunk, file)
        if place in self._open:
            self._open.move_to_end(place)
            return self._open[place]
        if self._info["features"][key]["dtype"] == "video":
            path = self._info["video_path"].format(
                video_key=key, chunk_index=chunk, file_index=file
            )
            source = VideoReader(self._root / path, self._schema.fps)
        else:
            path = self._info["data_path"].format(chunk_index=chunk, file_index=file)
            column = layout.read_table(self._root / path, [key])[key].combine_chunks()
            source = column.field("bytes")
        self._open[place] = source
        if len(self._open) > _OPEN_FILES:
            _, oldest = self._open.popitem(last=False)
            if isinstance(oldest, VideoReader):
                oldest.close()
        return source

    def _place(self, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chunk, file, and frame number within the file, of every frame of the selection."""
        if key not in self._places:
            selection, table = self._selection, self._table
            is_video = self._info["features"][key]["dtype"] == "video"
            prefix = f"videos/{key}" if is_video else "data"
            for column in (f"{prefix}/chunk_index", f"{prefix}/file_index"):
                if column not in table:
                    raise ValueError(f"the episode table of {self._root} has no column '{column}'")
            episode_n = np.repeat(selection.episodes, np.diff(selection.bounds))
            chunk_e = table[f"{prefix}/chunk_index"].to_numpy()
            file_e = table[f"{prefix}/file_index"].to_numpy()
            if is_video:
                start_e = table[f"videos/{key}/from_timestamp"].to_numpy() * self._schema.fps
                within_n = selection.rows_n - table["dataset_from_index"].to_numpy()[episode_n]
                row_n = np.rint(start_e).astype(np.int64)[episode_n] + within_n
            else:
                first = (
                    table.groupby([chunk_e, file_e])["dataset_from_index"]
                    .transform("min")
                    .to_numpy()
                )
                row_n = selection.rows_n - first[episode_n]
            self._places[key] = (chunk_e[episode_n], file_e[episode_n], row_n)
        return self._places[key]

    def _mapped(self, camera: str, cache_dir: Path) -> np.ndarray:
        """All decoded images of the selection as a memory-mapped file, written once."""
        if camera not in self._decoded:
            path = cache_dir / f"{camera}-{self._cache_key()}.u8"
            if not path.is_file():
                self._write_mapped(camera, path)
            self._decoded[camera] = np.memmap(path, np.uint8, "r", shape=self._shape)
        return self._decoded[camera]

    def _write_mapped(self, camera: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        tmp = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        images = np.memmap(tmp, np.uint8, "w+", shape=self._shape)
        for start in range(0, self._shape[0], 1024):
            frames = np.arange(start, min(start + 1024, self._shape[0]))
            images[frames] = self._decode(camera, frames)
        images.flush()
        tmp.replace(path)

    def _cache_key(self) -> str:
        """Changes with the selection and with any file of the dataset (name, size, time)."""
        digest = hashlib.sha256(np.ascontiguousarray(self._selection.rows_n).tobytes())
        for path in sorted(self._root.rglob("*")):
            if path.is_file():
                stat = path.stat()
                digest.update(f"{path}:{stat.st_size}:{stat.st_mtime_ns};".encode())
        return digest.hexdigest()[:16]
