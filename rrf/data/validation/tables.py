"""A dataset as two tables, one row per frame and one row per episode, which is what checks read.

Frame table: episode_index, frame_index, index, task_index, timestamp; one column per dimension of a
vector ("action.dx"); reward and success; per camera mean and std of the pixels
("observation.images.front.std", of the channel that varies most, so that plain green has 0; NaN
where the image cannot be decoded) and whether the image equals the one before ("...is_repeated"; of
a video, whose compression is lossy, as good as equals); and three derived columns:
timestamp_error_s, |timestamp - frame_index / fps|, the latter rounded to float32 too, which after
half an hour cannot tell 0.1 ms apart; timestamp_step_s and frame_step, by how much timestamp and
frame_index grew since the row before (on the first row of an episode NaN, and 1 if frame_index
starts at 0).

Episode table: episode_index, instruction, length (as declared), num_rows (as found),
ends_in_success, per camera the fraction of frames that repeat the one before.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf.data.dataset import layout, parquet
from rrf.data.images import decode_image
from rrf.data.schema import ACTION, IMAGE_PREFIX, INDEX_KEYS, STATE, SUCCESS, Schema
from rrf.data.video import VideoReader

TIME_STEP = "timestamp_step_s"
_MIN_CHANGES = 4  # of the action, which two episodes do not share by chance
_VIDEO_NOISE = 16  # grey levels; x264 changes pixels of a still scene by up to 13 at keyframes


@dataclasses.dataclass
class ImageScan:
    """What a pass over the images of one camera saw, one entry per frame of the dataset."""

    mean: np.ndarray  # float64 [N], NaN where undecodable
    std: np.ndarray  # float64 [N], of the channel that varies most
    digest: list[bytes]  # of the pixels, b"" where undecodable
    is_repeated: np.ndarray  # bool [N], the image is the one of the row before
    errors: dict[int, str]  # row -> why it cannot be decoded
    samples: dict[int, np.ndarray]  # row -> image, for the rows asked for


@dataclasses.dataclass
class Tables:
    """A dataset read for checking."""

    info: dict
    schema: Schema
    tasks: list[str]
    episode_meta: pd.DataFrame  # the episode table as stored
    frames: pd.DataFrame
    episodes: pd.DataFrame
    vectors: dict[str, np.ndarray]  # state, action: float32 [N, D]
    places: np.ndarray  # int64 [N, 2], chunk and file each frame lies in
    scans: dict[str, ImageScan]


def read_tables(root: str | Path, sample_rows: Sequence[int] = ()) -> Tables:
    """Read a dataset, decoding every image once.

    Args:
        root: The dataset's directory.
        sample_rows: Rows whose images are kept.

    Raises:
        ValueError: Naming file and column if the dataset cannot be read as tables at all.
    """
    root = Path(root)
    info = layout.read_info(root)
    schema, tasks, meta = (
        layout.schema_of(info),
        parquet.read_tasks(root),
        parquet.read_episodes(root),
    )
    keys = [STATE, ACTION, *INDEX_KEYS, *schema.scalars]
    columns = parquet.read_columns(root, keys)
    num_rows = len(columns["index"])
    if num_rows == 0:
        raise ValueError(f"{root}: the data files hold no frames")
    for key in INDEX_KEYS[1:]:  # a gap turns integers into floats, and no check can name a row then
        if np.isnan(columns[key]).any():
            row = int(np.isnan(columns[key]).argmax())
            raise ValueError(f"{root}: column {key}: row {row} is missing")
    vectors = {key: columns.pop(key).reshape(num_rows, -1) for key in (STATE, ACTION)}
    for key, vector in ((STATE, schema.state), (ACTION, schema.action)):
        if vectors[key].shape[1] != len(vector.names):
            raise ValueError(
                f"{root}: {key} has {vectors[key].shape[1]} dimensions on disk, "
                f"{len(vector.names)} in {layout.INFO}"
            )
    scans = {
        camera: _scan(root, info, meta, f"{IMAGE_PREFIX}{camera}", num_rows, set(sample_rows))
        for camera in schema.cameras
    }
    frames = _frame_table(schema, columns, vectors, scans)
    del columns  # copied into `frames`
    pa.default_memory_pool().release_unused()  # else Arrow may keep 100 MB per million rows
    episodes = _episode_table(schema, frames, meta, tasks)
    places = np.repeat(*_file_sizes(root), axis=0)
    return Tables(info, schema, tasks, meta, frames, episodes, vectors, places, scans)


def dimension_columns(schema: Schema) -> dict[str, list[str]]:
    """The frame table's columns of each vector, in the order of its dimensions."""
    vectors = {STATE: schema.state, ACTION: schema.action}
    return {key: [f"{key}.{name}" for name in vector.names] for key, vector in vectors.items()}


def episode_digests(tables: Tables) -> dict[int, str]:
    """A digest of each episode's content: vectors and pixels, not its numbers."""
    digests = {}
    for number, rows in tables.frames.groupby("episode_index").indices.items():
        digest = hashlib.sha256()
        for values in tables.vectors.values():
            digest.update(np.ascontiguousarray(values[rows]).tobytes())
        for scan in tables.scans.values():
            digest.update(b"".join(scan.digest[row] for row in rows))
        digests[int(str(number))] = digest.hexdigest()
    return digests


def action_digests(tables: Tables) -> dict[int, str]:
    """A digest of the actions of each episode, without those whose actions hardly change, which
    they may share by chance.
    """
    actions, digests = tables.vectors[ACTION], {}
    for number, rows in tables.frames.groupby("episode_index").indices.items():
        content = np.ascontiguousarray(actions[rows])
        if (content[1:] != content[:-1]).any(axis=1).sum() >= _MIN_CHANGES:
            digests[int(str(number))] = hashlib.sha256(content.tobytes()).hexdigest()
    return digests


def frame_digests(tables: Tables) -> np.ndarray:
    """A digest of each frame's content as uint64 [N]: vectors and pixels, not its numbers.

    Without the pixels of video: what compression makes of an image depends on those before it.
    """
    vectors = [np.ascontiguousarray(values, np.float32) for values in tables.vectors.values()]
    rows = np.concatenate(vectors, axis=1)
    content, width = memoryview(rows.tobytes()), rows.shape[1] * rows.itemsize
    features = tables.info["features"]
    scans = [
        scan.digest
        for camera, scan in tables.scans.items()
        if features[f"{IMAGE_PREFIX}{camera}"]["dtype"] != "video"
    ]
    digests = bytearray()
    for row in range(len(rows)):
        digest = hashlib.blake2b(content[row * width : (row + 1) * width], digest_size=8)
        for images in scans:
            digest.update(images[row])
        digests += digest.digest()
    return np.frombuffer(digests, np.uint64)


def _file_sizes(root: Path) -> tuple[np.ndarray, list[int]]:
    """(chunk, file) of every data file, and its number of rows."""
    paths = parquet.data_files(root)
    places = np.array([parquet.chunk_and_file(path) for path in paths])
    return places, [pq.read_metadata(path).num_rows for path in paths]


def _frame_table(
    schema: Schema,
    columns: dict[str, np.ndarray],
    vectors: dict[str, np.ndarray],
    scans: dict[str, ImageScan],
) -> pd.DataFrame:
    table = dict(columns)
    for key, names in dimension_columns(schema).items():
        table |= {name: vectors[key][:, index] for index, name in enumerate(names)}
    frame, episode = columns["frame_index"], columns["episode_index"]
    expected_s = (frame / schema.fps).astype(np.float32).astype(np.float64)
    table["timestamp_error_s"] = np.abs(columns["timestamp"].astype(np.float64) - expected_s)
    is_first = np.diff(episode, prepend=episode[:1] - 1) != 0
    step_s = np.diff(columns["timestamp"].astype(np.float64), prepend=np.nan)
    table[TIME_STEP] = np.where(is_first, np.nan, step_s)
    table["frame_step"] = np.where(is_first, frame + 1, np.diff(frame, prepend=0))
    for camera, scan in scans.items():
        key = f"{IMAGE_PREFIX}{camera}"
        table[f"{key}.mean"], table[f"{key}.std"] = scan.mean, scan.std
        table[f"{key}.is_repeated"] = scan.is_repeated & ~is_first
    return pd.DataFrame(table)


def _episode_table(
    schema: Schema, frames: pd.DataFrame, meta: pd.DataFrame, tasks: list[str]
) -> pd.DataFrame:
    groups = frames.groupby("episode_index", sort=True)
    table = pd.DataFrame({"num_rows": groups.size()})
    first_task = groups["task_index"].first()
    table["instruction"] = [tasks[t] if 0 <= t < len(tasks) else None for t in first_task]
    if schema.has_success:
        table["ends_in_success"] = groups[SUCCESS].last().astype(bool)
    for camera in schema.cameras:
        repeated = groups[f"{IMAGE_PREFIX}{camera}.is_repeated"].sum()
        pairs = np.maximum(table["num_rows"] - 1, 1)
        table[f"{IMAGE_PREFIX}{camera}.frozen_fraction"] = repeated / pairs
    declared = meta.set_index("episode_index")[["length"]]
    return declared.join(table, how="outer").rename_axis("episode_index").reset_index()


def _scan(
    root: Path, info: dict, meta: pd.DataFrame, key: str, num_rows: int, samples: set[int]
) -> ImageScan:
    scan = ImageScan(
        mean=np.full(num_rows, np.nan),
        std=np.full(num_rows, np.nan),
        digest=[b""] * num_rows,
        is_repeated=np.zeros(num_rows, bool),
        errors={},
        samples={},
    )
    is_video = info["features"][key]["dtype"] == "video"
    height, width = layout.schema_of(info).image_size
    images = _video_images(root, info, meta, key) if is_video else _stored_images(root, key)
    before = None
    for row, image in images:
        if row >= num_rows:
            break
        if isinstance(image, np.ndarray) and image.shape != (height, width, 3):
            image = f"the image is {list(image.shape)}, expected {[height, width, 3]}"
        if isinstance(image, str):
            scan.errors[row], before = image, None
            continue
        scan.mean[row] = image.mean()
        scan.std[row] = max(image[..., channel].std() for channel in range(3))
        scan.digest[row] = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        if before is not None:
            noise = np.abs(np.subtract(image, before, dtype=np.int16)).max() if is_video else 0
            is_equal = scan.digest[row] == scan.digest[row - 1]
            scan.is_repeated[row] = is_equal or 0 < noise <= _VIDEO_NOISE
        before = image
        if row in samples:
            scan.samples[row] = image
    return scan


def _stored_images(root: Path, key: str) -> Iterator[tuple[int, np.ndarray | str]]:
    row = 0
    for path in parquet.data_files(root):
        for blob in parquet.read_table(path, [key])[key].combine_chunks().field("bytes"):
            try:
                yield row, decode_image(blob.as_py() or b"")
            except ValueError as error:
                yield row, str(error)
            row += 1


def _video_images(
    root: Path, info: dict, meta: pd.DataFrame, key: str
) -> Iterator[tuple[int, np.ndarray | str]]:
    row, reader, opened = 0, None, ""
    for episode in meta.sort_values("episode_index").to_dict("records"):
        path = info["video_path"].format(
            video_key=key,
            chunk_index=episode[f"videos/{key}/chunk_index"],
            file_index=episode[f"videos/{key}/file_index"],
        )
        start = round(episode[f"videos/{key}/from_timestamp"] * info["fps"])
        frames: Sequence[np.ndarray | str]
        try:
            if path != opened or reader is None:
                reader, opened = VideoReader(root / path, info["fps"]), path
            frames = list(reader.read(np.arange(start, start + episode["length"])))
        except ValueError as error:
            frames = [str(error)] * episode["length"]
        for image in frames:
            yield row, image
            row += 1
