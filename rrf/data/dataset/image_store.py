"""Images of a LeRobot v3.0 dataset by frame number. They are found, decoded, and kept decoded if
they fit.

Frames are decoded on first use, sorted by file and position. If all decoded images of the selection
fit into `cache_bytes`, they are kept in memory. If not, they are kept in a memory-mapped file if
`cache_dir` is given. Otherwise each request decodes again.

The files are opened on first use, and the last few stay open. Of a remote file, only the ranges
that the frames need are fetched. Of a parquet file, whole row groups are read, and the last
`_BLOB_BYTES` of them are kept. Every process opens the files itself, so a process that was forked,
or was sent this object, does not share a file offset with its parent.

Legend: N frames of the selection, B frames asked for.
"""

import collections
import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data.dataset import layout, parquet
from rrf.data.dataset.decoded_cache import mapped_images
from rrf.data.dataset.layout import fill, path_inside
from rrf.data.dataset.selection import Chosen
from rrf.data.files import RemotePath, versions_below
from rrf.data.images import decode_image
from rrf.data.remedies import again
from rrf.data.video import VideoReader

CACHE_BYTES = 2 << 30


class ImageStore:
    """Decoded images of a selection.

    Args:
        chosen: Which cameras and frames of which dataset.
        cache_bytes: Decoded images are kept in memory if all cameras together need at most this
            much.
        cache_dir: Folder for the memory-mapped files of a larger selection; none by default.
    """

    def __init__(
        self, chosen: Chosen, cache_bytes: int = CACHE_BYTES, cache_dir: Path | None = None
    ):
        self._root, self._info, self._table = chosen.root, chosen.info, chosen.table
        self._selection = selection = chosen.frames
        cameras, root, info = chosen.features.cameras, chosen.root, chosen.info
        self._cameras, self._files = cameras, ImageFiles(root, info)
        self._shape = (len(selection), *cameras.image_size, 3)
        num_bytes = int(np.prod(self._shape)) * len(cameras.keys)
        self._keeps_in_memory = num_bytes <= cache_bytes
        self._cache_dir = None if self._keeps_in_memory else cache_dir
        self._version = self._content() if self._cache_dir is not None else ""
        self._decoded: dict[str, np.ndarray] = {}
        self._is_decoded: dict[str, np.ndarray] = {}
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

    def _is_video(self, key: str) -> bool:
        return self._info["features"][key]["dtype"] == "video"

    def _with_neighbours(self, camera: str, missing: np.ndarray) -> np.ndarray:
        """The missing frames; for video, all missing frames of their episodes.

        Decoding the next frames is cheaper than seeking again.
        """
        if not self._is_video(self._cameras.keys[camera]):
            return missing
        bounds = self._selection.bounds.tolist()
        episodes = np.unique(np.searchsorted(bounds, missing, side="right") - 1)
        frames = np.concatenate([np.arange(bounds[e], bounds[e + 1]) for e in episodes])
        return frames[~self._is_decoded[camera][frames]]

    def _decode(self, camera: str, frames_b: np.ndarray) -> np.ndarray:
        """Decode in the order of files and positions, and return in the order asked for."""
        key = self._cameras.keys[camera]
        chunk_n, file_n, row_n = self._place(key)
        chunk, file, row = chunk_n[frames_b], file_n[frames_b], row_n[frames_b]
        order = np.lexsort((row, file, chunk))
        images = np.empty((len(frames_b), *self._shape[1:]), np.uint8)
        starts = np.flatnonzero(np.diff(np.stack([chunk, file])[:, order], axis=1).any(axis=0)) + 1
        for group in np.split(order, starts):
            place = key, int(chunk[group[0]]), int(file[group[0]])
            try:
                if self._is_video(key):
                    shown = self._files.video(*place).read(row[group])
                    self._check_shape(shown[0], key, int(frames_b[group[0]]))
                    images[group] = shown
                else:
                    self._decode_blobs(place, row[group], frames_b[group], images, group)
            except ValueError:
                self._files.close(*place)
                raise
        return images

    def _decode_blobs(
        self,
        place: tuple[str, int, int],
        rows: np.ndarray,
        frames: np.ndarray,
        images: np.ndarray,
        targets: np.ndarray,
    ) -> None:
        """Decode ascending rows of a parquet file into `images` at `targets`, each row once."""
        blobs = self._files.blobs(*place, rows)
        for index, (blob, frame) in enumerate(zip(blobs, frames, strict=True)):
            if index and rows[index] == rows[index - 1]:
                images[targets[index]] = images[targets[index - 1]]
                continue
            try:
                image = decode_image(blob)
            except ValueError as error:
                raise ValueError(
                    f"{self._where(frame)}: {place[0]} cannot be decoded: {error}"
                ) from error
            self._check_shape(image, place[0], frame)
            images[targets[index]] = image

    def _check_shape(self, image: np.ndarray, key: str, frame: int) -> None:
        expected = self._shape[1:]
        if image.shape != expected:
            raise ValueError(
                f"{self._where(frame)}: {key} is {list(image.shape)}, expected {list(expected)}"
            )

    def _where(self, frame: int) -> str:
        number = self._selection.episode_of(frame)
        within = frame - self._selection.bounds[number]
        return f"{self._root}: episode {self._selection.episodes[number]}, frame {within}"

    def _place(self, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chunk, file, and frame number within the file, of every frame of the selection."""
        if key not in self._places:
            selection, table = self._selection, self._table
            is_video = self._is_video(key)
            prefix = f"videos/{key}" if is_video else "data"
            start = [f"{prefix}/from_timestamp"] * is_video
            for column in (f"{prefix}/chunk_index", f"{prefix}/file_index", *start):
                if column not in table:
                    raise ValueError(f"the episode table of {self._root} has no column '{column}'")
            episode_n = np.repeat(selection.episodes, np.diff(selection.bounds))
            chunk_e = table[f"{prefix}/chunk_index"].to_numpy()
            file_e = table[f"{prefix}/file_index"].to_numpy()
            if is_video:
                start_e = table[f"{prefix}/from_timestamp"].to_numpy() * self._cameras.fps
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
            self._decoded[camera] = mapped_images(
                cache_dir,
                f"{camera}-{self._identity(camera)}",
                self._version,
                hashlib.sha256(self._selection.rows_n.tobytes()).hexdigest()[:16],
                self._shape,
                lambda frames: self._decode(camera, frames),
            )
        return self._decoded[camera]

    @property
    def identity(self) -> tuple[str, str]:
        """Digests of the dataset's place with the selection, and of the content of its files."""
        root = str(self._root.resolve()) if isinstance(self._root, Path) else str(self._root)
        rows = self._selection.rows_n.tobytes()
        return hashlib.sha256(root.encode() + rows).hexdigest()[:16], self._content()

    def _identity(self, camera: str) -> str:
        """Digest that identifies a camera of a dataset."""
        root = str(self._root.resolve()) if isinstance(self._root, Path) else str(self._root)
        return hashlib.sha256(f"{root};{self._cameras.keys[camera]}".encode()).hexdigest()[:16]

    def _content(self) -> str:
        """Digest of the content of the dataset's files, judged by size and time, or by etag."""
        versions = {
            name: version
            for name, version in versions_below(self._root).items()
            if name.startswith(("data/", "videos/", "meta/"))
        }
        return hashlib.sha256(repr(versions).encode()).hexdigest()[:16]

    def __getstate__(self) -> dict:
        """The state without the decoded images, which another process decodes or maps itself."""
        return self.__dict__ | {"_decoded": {}, "_is_decoded": {}}


_OPEN_FILES = 32
_BLOB_BYTES = 256 << 20
_Place = tuple[str, int, int]  # key, chunk, file


class ImageFiles:
    """The image files of a dataset.

    Args:
        root: The dataset's directory.
        info: Its info.json.
    """

    def __init__(self, root: Path | RemotePath, info: dict):
        self._root, self._info = root, info
        self._forget()

    def video(self, key: str, chunk: int, file: int) -> VideoReader:
        """The video file of the camera with the feature name `key`.

        Raises ValueError if it is missing or not a video, or if its path leads out of the dataset.
        """
        opened = self._opened((key, chunk, file))
        assert isinstance(opened, VideoReader)
        return opened

    def blobs(self, key: str, chunk: int, file: int, rows: np.ndarray) -> list[bytes]:
        """Encoded images of ascending rows in a column of a parquet file; empty if an image is
        missing.

        Raises ValueError if the file is missing, damaged, has no such column or fewer rows.
        """
        place = (key, chunk, file)
        column = self._opened(place)
        assert isinstance(column, _ImageColumn)
        if rows[-1] >= column.starts[-1]:
            raise ValueError(f"{column.path} ends before row {rows[-1]}; {again(column.path)}")
        group_b = np.searchsorted(column.starts, rows, side="right") - 1
        blobs: list[bytes] = []
        for group in np.unique(group_b).tolist():
            values = self._row_group(place, column, group)
            within = rows[group_b == group] - column.starts[group]
            blobs += [values[row].as_py() or b"" for row in within.tolist()]
        return blobs

    def close(self, key: str, chunk: int, file: int) -> None:
        """Close a file, which may be in a bad state. The next use opens it again."""
        opened = self._open.pop((key, chunk, file), None)
        if opened is not None:
            opened.close()

    def _row_group(self, place: _Place, column: "_ImageColumn", group: int) -> pa.Array:
        at = (place, group)
        if at in self._row_groups:
            self._row_groups.move_to_end(at)
            return self._row_groups[at]
        values = column.read(group)
        self._row_groups[at] = values
        self._num_bytes += values.nbytes
        while self._num_bytes > _BLOB_BYTES and len(self._row_groups) > 1:
            _, oldest = self._row_groups.popitem(last=False)
            self._num_bytes -= oldest.nbytes
        return values

    def _opened(self, place: _Place) -> "VideoReader | _ImageColumn":
        if os.getpid() != self._pid:
            self._forget()
        if place in self._open:
            self._open.move_to_end(place)
            return self._open[place]
        key, chunk, file = place
        if self._info["features"][key]["dtype"] == "video":
            path = self._path("video_path", layout.VIDEO_PATH, chunk, file, {"video_key": key})
            opened = VideoReader(path, self._info["fps"])
        else:
            path = self._path("data_path", layout.DATA_PATH, chunk, file, {})
            opened = _ImageColumn(path, key)
        self._open[place] = opened
        if len(self._open) > _OPEN_FILES:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        return opened

    def _path(
        self, name: str, standard: str, chunk: int, file: int, more: dict[str, str]
    ) -> Path | RemotePath:
        where = f"{self._root / layout.INFO}: {name}"
        values = {"chunk_index": chunk, "file_index": file} | more
        template = self._info.get(name) or standard
        return path_inside(self._root, fill(template, where, values), where)

    def _forget(self) -> None:
        """Start with no open files. Open files are left to the process that opened them."""
        self._pid, self._num_bytes = os.getpid(), 0
        self._open: collections.OrderedDict[_Place, VideoReader | _ImageColumn] = (
            collections.OrderedDict()
        )
        self._row_groups: collections.OrderedDict[tuple[_Place, int], pa.Array] = (
            collections.OrderedDict()
        )

    def __getstate__(self) -> dict:
        return {"_root": self._root, "_info": self._info}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**{name.removeprefix("_"): value for name, value in state.items()})


class _ImageColumn:
    """The encoded images of one parquet file."""

    def __init__(self, path: Path | RemotePath, key: str):
        self.path, self._key = path, key
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(parquet.open_parquet(path, [key]))
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])  # of the row groups

    def read(self, group: int) -> pa.Array:
        """The encoded images of one row group."""
        with parquet.readable(self.path):
            column = self._file.read_row_group(group, [self._key])[self._key].combine_chunks()
        return column.field("bytes") if pa.types.is_struct(column.type) else column

    def close(self) -> None:
        self._stack.close()
