"""The files that hold a dataset's images. They are opened on first use, and the last few stay open.

Of a remote file, only the ranges that the frames need are fetched. Of a parquet file, whole row
groups are read, and the last `_BLOB_BYTES` of them are kept. Every process opens the files itself,
so a process that was forked, or was sent this object, does not share a file offset with its parent.
"""

import collections
import contextlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data.dataset import layout, parquet
from rrf.data.dataset.layout import fill, path_inside
from rrf.data.files import RemotePath
from rrf.data.video import VideoReader

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
            raise ValueError(f"{column.path} ends before row {rows[-1]}; run: dvc repro")
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
