"""The files of a dataset being written, each kind a series: a file that is full is finished and the
next one begins, never within an episode. So does a video file where the next episode was encoded
otherwise, which happens in datasets that are merged.
"""

import contextlib
import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rrf.data.conversion.video_encoding import VideoFile, decoder_settings, open_video
from rrf.data.dataset import layout
from rrf.data.dataset.maps import parquet_options
from rrf.data.schema import Schema

ROW_GROUP_ROWS = 1000
ROW_GROUP_BYTES = 32 << 20
_MEGABYTE = 1 << 20
_ROWS_AS_PYTHON = 100


@dataclasses.dataclass(frozen=True)
class FileLimits:
    """When a new file begins."""

    data_mb: float = 100
    video_mb: float = 200
    files_per_chunk: int = 1000


class DataFiles:
    """The rolling parquet files of frames."""

    def __init__(self, root: Path, schema: pa.Schema, limits: FileLimits):
        self._root, self._schema, self._limits = root, schema, limits
        self._place = (0, 0)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._num_pending_rows = self._num_pending_bytes = self._num_bytes = 0

    def add(self, episode: pa.Table) -> tuple[int, int]:
        """Append one episode; returns the (chunk, file) it went to."""
        size = episode.nbytes
        if self._num_bytes and self._num_bytes + size > self._limits.data_mb * _MEGABYTE:
            self.close()
            self._place = layout.next_file(*self._place, self._limits.files_per_chunk)
        self._num_bytes += size
        self._pending.append(episode)
        self._num_pending_rows += episode.num_rows
        self._num_pending_bytes += size
        if self._num_pending_rows >= ROW_GROUP_ROWS or self._num_pending_bytes >= ROW_GROUP_BYTES:
            self._flush()
        return self._place

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._num_bytes = None, 0

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            chunk_index, file_index = self._place
            path = self._root / layout.DATA_PATH.format(
                chunk_index=chunk_index, file_index=file_index
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, self._schema, **parquet_options(self._schema))
        self._writer.write_table(pa.concat_tables(self._pending))
        self._pending, self._num_pending_rows, self._num_pending_bytes = [], 0, 0


class VideoFiles:
    """The rolling video files of one camera."""

    def __init__(self, root: Path, key: str, schema: Schema, limits: FileLimits):
        self._root, self._key, self._schema, self._limits = root, key, schema, limits
        self._place = (0, 0)
        self._file: VideoFile | None = None
        self._settings = b""  # of the decoder, for all episodes in the file

    def add(self, video: bytes) -> dict:
        """Append one episode, an mp4 file; returns its columns of the episode table."""
        limit = self._limits.video_mb * _MEGABYTE
        with contextlib.closing(open_video(video)) as source:
            settings = decoder_settings(source)
            if self._file is not None and (
                self._file.num_bytes + len(video) > limit or settings != self._settings
            ):
                self.close()
                self._place = layout.next_file(*self._place, self._limits.files_per_chunk)
            chunk_index, file_index = self._place
            if self._file is None:
                path = self._root / layout.VIDEO_PATH.format(
                    video_key=self._key, chunk_index=chunk_index, file_index=file_index
                )
                self._file, self._settings = VideoFile(path, self._schema.fps), settings
            start = self._file.num_frames
            self._file.add(source, len(video))
        return {
            f"videos/{self._key}/chunk_index": chunk_index,
            f"videos/{self._key}/file_index": file_index,
            f"videos/{self._key}/from_timestamp": start / self._schema.fps,
            f"videos/{self._key}/to_timestamp": self._file.num_frames / self._schema.fps,
        }

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


class EpisodeTable:
    """The rolling files of the episode table."""

    def __init__(self, root: Path, limits: FileLimits):
        self._root, self._limits = root, limits
        self._place = (0, 0)
        self._rows: list[dict] = []
        self._tables: list[pa.Table] = []  # the row group being gathered
        self._writer: pq.ParquetWriter | None = None
        self._per_file = self._num_in_file = 0

    def add(self, row: dict) -> None:
        chunk_index, file_index = self._place
        place = {"meta/episodes/chunk_index": chunk_index, "meta/episodes/file_index": file_index}
        self._rows.append(row | place)
        if not self._per_file:
            size = pa.Table.from_pylist(self._rows).nbytes
            self._per_file = max(1, int(self._limits.data_mb * _MEGABYTE / size))
        self._num_in_file += 1
        if len(self._rows) >= _ROWS_AS_PYTHON:
            self._pack()
        if sum(table.num_rows for table in self._tables) >= ROW_GROUP_ROWS:
            self._flush()
        if self._num_in_file >= self._per_file:
            self.close()
            self._place = layout.next_file(*self._place, self._limits.files_per_chunk)

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._num_in_file = None, 0

    def _pack(self) -> None:
        """Rows as Python objects are ten times as large as in a table."""
        schema = self._tables[0].schema if self._tables else None
        if self._rows:
            self._tables.append(pa.Table.from_pylist(self._rows, schema=schema))
        self._rows = []

    def _flush(self) -> None:
        self._pack()
        if not self._tables:
            return
        if self._writer is None:
            chunk_index, file_index = self._place
            path = self._root / layout.EPISODES_PATH.format(
                chunk_index=chunk_index, file_index=file_index
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, self._tables[0].schema, compression="snappy")
        self._writer.write_table(pa.concat_tables(self._tables).combine_chunks())
        self._tables = []
