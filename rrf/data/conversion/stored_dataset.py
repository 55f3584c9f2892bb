"""A dataset that was written before, as a source of encoded episodes: merging and editing take its
compressed images and videos as they are.

Legend: T frames of an episode.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data.conversion.video_encoding import cut_video, encode_video
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.map_files import map_of, read_depth_video
from rrf.data.dataset.stats import ImageStats
from rrf.data.encoding import Encoding
from rrf.data.image_header import read_image_header
from rrf.data.language import COLUMNS, Language, from_columns
from rrf.data.schema import IMAGE_PREFIX, EncodedImages, Schema
from rrf.data.video import VideoReader


class StoredDataset:
    """A dataset in its directory.

    Args:
        root: The directory.

    Raises:
        ValueError: If there is none (with the commands that bring it), or it is damaged.
    """

    def __init__(self, root: Path):
        self.root = root
        self.info = layout.read_info(root)
        self.schema = layout.schema_of(self.info)
        self.rows: list[dict] = parquet.read_episodes(root).to_dict("records")
        self.encoding = _encoding(self.info, self.schema)
        self._tasks = parquet.read_tasks(root)
        self._first_row: dict[tuple[int, int], int] = {}  # of each data file
        for row in self.rows:
            place = (row["data/chunk_index"], row["data/file_index"])
            self._first_row.setdefault(place, row["dataset_from_index"])
        self._open: tuple[tuple[int, int], pa.Table] | None = None

    def frames(self, row: Mapping) -> pa.Table:
        """The frames of an episode, given by its row of the episode table."""
        place = (row["data/chunk_index"], row["data/file_index"])
        if self._open is None or self._open[0] != place:
            path = self.info["data_path"].format(chunk_index=place[0], file_index=place[1])
            self._open = place, parquet.read_table(self.root / path)
        start = row["dataset_from_index"] - self._first_row[place]
        return self._open[1].slice(start, row["length"])

    def instruction(self, frames: pa.Table) -> str:
        """What the frames of an episode say that it was told."""
        return self._tasks[frames["task_index"][0].as_py()]

    def images(self, frames: pa.Table, camera: str) -> EncodedImages:
        """Images of a camera that are stored as such, still compressed."""
        column = frames[f"{IMAGE_PREFIX}{camera}"].combine_chunks()
        blobs = column.field("bytes").to_pylist()
        return EncodedImages(blobs, read_image_header(blobs[0]).suffix)

    def map(
        self, row: Mapping, frames: pa.Table, name: str, first: int = 0, stop: int | None = None
    ) -> np.ndarray:
        """Images that are not RGB, [T, H, W], of `frames`: those from `first` to `stop` of the
        episode.
        """
        maps = layout.maps_of(self.info).items()
        ((key, kind),) = ((key, map_spec) for key, map_spec in maps if map_spec.name == name)
        if self.info["features"][key]["dtype"] == "video":
            return read_depth_video(self.root, self.info, row, key, first, stop)
        return map_of(frames[key], self.info, key, kind)

    def language(self, frames: pa.Table, where: str) -> Language | None:
        """The annotations of an episode, given by all its frames; None if the dataset has none."""
        columns = {key: frames[key] for key in COLUMNS if key in frames.column_names}
        return from_columns(columns, where) if columns else None

    def video(
        self, row: Mapping, camera: str, stats: ImageStats, first: int = 0, stop: int | None = None
    ) -> tuple[bytes, bool]:
        """Frames `first` to `stop` of an episode as an mp4 file, whose pixels are counted.

        Returns:
            The file, and whether its frames were compressed again: those of the dataset are copied
            if `first` is a keyframe, as frame 0 is.
        """
        key, fps = f"{IMAGE_PREFIX}{camera}", self.schema.fps
        path = self.root / self.info["video_path"].format(
            video_key=key,
            chunk_index=row[f"videos/{key}/chunk_index"],
            file_index=row[f"videos/{key}/file_index"],
        )
        start = round(row[f"videos/{key}/from_timestamp"] * fps) + first
        length = (row["length"] if stop is None else stop) - first
        images = []
        reader = VideoReader(path, fps)
        is_whole = first == 0 or reader.is_keyframe(start)
        for number in range(start, start + length):
            image = reader.read(np.array([number]))
            stats.update(image)
            if not is_whole:
                images.append(image[0])
        reader.close()
        if is_whole:
            return cut_video(path, fps, start, length), False
        interval = self.encoding.keyframe_interval(fps)
        size, codec = self.schema.image_size, self.encoding.codec
        return encode_video(images, fps, size, codec, interval), True


def _encoding(info: dict, schema: Schema) -> Encoding:
    if not schema.cameras:
        return Encoding()
    feature = info["features"][f"{IMAGE_PREFIX}{schema.cameras[0]}"]
    return Encoding(feature["dtype"], (feature.get("info") or {}).get("video.codec", "h264"))
