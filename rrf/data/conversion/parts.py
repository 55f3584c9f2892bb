"""Finished pieces of a conversion on disk: the encoded episodes of one recording, so that a
conversion that was interrupted goes on where it stopped, and processes can work side by side.

    <dataset>.parts/                  locked while a process converts or publishes the dataset
        <digest>/episodes.arrow       one record batch per encoded episode
        <digest>/facts.json           counts, warnings

A part is there whole or not at all, and its name is a digest of all it depends on.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf import atomic
from rrf.data.conversion.encoded import EncodedEpisode
from rrf.data.dataset.stats import ImageStats
from rrf.data.language import Language
from rrf.data.schema import (
    ACTION,
    EXTRA_PREFIX,
    IMAGE_PREFIX,
    MAP_PREFIX,
    SCALARS,
    STATE,
    EncodedImages,
    Schema,
)

_EPISODES = "episodes.arrow"
_FACTS = "facts.json"
_COLUMNS = "columns"


@contextlib.contextmanager
def parts_of(out: Path) -> Iterator[Path]:
    """The directory for the parts of the dataset at `out`, ours alone within the block. It is
    removed when the block ends well, and else kept for the next attempt.

    Raises:
        ValueError: If another process is converting or publishing the same dataset.
    """
    folder, busy = _lock_of(out)
    with atomic.resumable(folder, f"{busy}, or write elsewhere: --out"):
        yield folder


@contextlib.contextmanager
def alone_with(out: Path) -> Iterator[None]:
    """Nobody else converts or publishes the dataset at `out` within the block; parts that wait
    there for the next attempt are kept.

    Raises:
        ValueError: If another process is doing so.
    """
    with atomic.alone(*_lock_of(out)):
        yield


def _lock_of(out: Path) -> tuple[Path, str]:
    """Whose lock is that of the dataset at `out`, and what to say if another process holds it."""
    folder = out.with_name(f"{out.name}.parts")
    busy = f"another process is converting or publishing {out} at this moment (it holds {folder})"
    return folder, f"{busy}; wait for it to finish"


def write_part(
    path: Path, schema: Schema, episodes: Iterable[EncodedEpisode], facts: Callable[[], dict]
) -> None:
    """Write a part, atomically.

    Args:
        path: The part's directory.
        schema: What the episodes hold.
        episodes: In order; consumed one at a time.
        facts: Called once they are consumed; plain data.
    """
    layout = _arrow_schema(schema)
    with atomic.directory(path) as directory:
        with (
            pa.OSFile(str(directory / _EPISODES), "wb") as file,
            pa.ipc.new_file(file, layout) as writer,
        ):
            for episode in episodes:
                writer.write_batch(_batch(episode, layout))
        (directory / _FACTS).write_text(json.dumps(facts()), encoding="utf-8")


def read_facts(path: Path) -> dict:
    """What `write_part` was given as facts."""
    return atomic.parse_json((path / _FACTS).read_bytes(), path / _FACTS)


def read_part(path: Path, schema: Schema) -> Iterator[EncodedEpisode]:
    """The episodes of a part, one at a time."""
    with pa.OSFile(str(path / _EPISODES), "rb") as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield _episode(reader.get_batch(index), schema)


def remove_others(folder: Path, wanted: set[str]) -> None:
    """Remove what belongs to other recordings, or to other content or settings of these."""
    for path in list(folder.iterdir()):
        if path.name not in wanted:
            atomic.remove(path)


def _arrow_schema(schema: Schema) -> pa.Schema:
    fields = [(name, pa.string()) for name in ("instruction", "source", _COLUMNS)]
    extras = [f"{EXTRA_PREFIX}{name}" for name, _ in schema.extras]
    fields += [(key, pa.large_binary()) for key in (STATE, ACTION, *schema.scalars, *extras)]
    for camera in schema.cameras:
        key = f"{IMAGE_PREFIX}{camera}"
        fields += [
            (f"{key}/images", pa.large_list(pa.large_binary())),
            (f"{key}/suffix", pa.string()),
            (f"{key}/video", pa.large_binary()),
            (f"{key}/histogram", pa.large_binary()),
        ]
    fields += [(f"{MAP_PREFIX}{map_spec.name}", pa.large_binary()) for map_spec in schema.maps]
    fields += [("language", pa.large_string())] * schema.has_language
    return pa.schema(fields)


def _batch(episode: EncodedEpisode, layout: pa.Schema) -> pa.RecordBatch:
    row: dict = {"instruction": episode.instruction, "source": episode.source}
    row[_COLUMNS] = json.dumps(dict(episode.columns))
    if episode.language is not None:
        row["language"] = episode.language.to_json()
    for key, values in (episode.vectors | episode.maps).items():
        row[key] = np.ascontiguousarray(values).tobytes()
    for key, stats in episode.image_stats.items():
        images = episode.images.get(key)
        row[f"{key}/images"] = list(images.blobs) if images is not None else None
        row[f"{key}/suffix"] = images.suffix if images is not None else None
        row[f"{key}/video"] = episode.videos.get(key)
        row[f"{key}/histogram"] = stats.histogram_cl.tobytes()
    return pa.RecordBatch.from_pylist([row], schema=layout)


def _episode(batch: pa.RecordBatch, schema: Schema) -> EncodedEpisode:
    def value(key: str):
        return batch.column(key)[0].as_py()

    vectors: dict[str, np.ndarray] = {
        STATE: np.frombuffer(value(STATE), np.float32).reshape(-1, len(schema.state.names)),
        ACTION: np.frombuffer(value(ACTION), np.float32).reshape(-1, len(schema.action.names)),
    }
    for key in schema.scalars:
        vectors[key] = np.frombuffer(value(key), SCALARS[key])
    for name, vector in schema.extras:
        key = f"{EXTRA_PREFIX}{name}"
        vectors[key] = np.frombuffer(value(key), np.float32).reshape(-1, len(vector.names))
    images, videos, image_stats = {}, {}, {}
    for camera in schema.cameras:
        key = f"{IMAGE_PREFIX}{camera}"
        blobs, video = value(f"{key}/images"), value(f"{key}/video")
        if blobs is not None:
            images[key] = EncodedImages(blobs, value(f"{key}/suffix"))
        if video is not None:
            videos[key] = video
        histogram = np.frombuffer(value(f"{key}/histogram"), np.int64).reshape(3, 256)
        image_stats[key] = ImageStats(histogram, len(vectors[ACTION]))
    maps = {}
    for map_spec in schema.maps:
        key = f"{MAP_PREFIX}{map_spec.name}"
        maps[key] = np.frombuffer(value(key), map_spec.dtype).reshape(-1, *map_spec.size)
    return EncodedEpisode(
        value("instruction"),
        value("source"),
        vectors,
        images,
        videos,
        image_stats,
        maps,
        json.loads(value(_COLUMNS)) if _COLUMNS in batch.schema.names else {},
        language=Language.from_json(value("language")) if schema.has_language else None,
    )
