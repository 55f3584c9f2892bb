"""What a column of a LeRobot table holds: numbers, text, images, depth, language annotations.

Legend: T frames of an episode.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data.dataset.depth import decode_depth
from rrf.data.dataset.layout import depth_map, is_depth, path_inside
from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.modality import Part
from rrf.data.language import Language, from_columns
from rrf.data.schema import EncodedImages


def column_values(
    column: pa.ChunkedArray,
    key: str,
    feature: dict | None,
    root: Path,
    where: str,
    warn: Callable[[str], None],
) -> np.ndarray | EncodedImages:
    """A column as [T, ...] numbers or text, or as encoded images.

    Args:
        column: The rows of an episode.
        key: Its name.
        feature: What info.json says of it, if anything.
        root: The dataset's directory, in which images lie that the column only names.
        where: The beginning of every message.
        warn: Called with what is odd.

    Raises:
        ValueError: Naming the row that is missing, damaged or of another shape.
    """
    at = f"{where}: {key}"
    if feature is not None and is_depth(feature) and arrow.is_image(column.type):
        blobs = [value["bytes"] or b"" for value in column.to_pylist()]
        return decode_depth(blobs, depth_map(key, feature), at)
    try:
        if arrow.is_image(column.type):
            return arrow.encoded_images(column, lambda path: path_inside(root, path, at))
        if not arrow.is_text(column.type):
            values = arrow.numbers(column)
        else:
            texts = arrow.texts(column)
            is_vector = feature is not None and feature.get("dtype") != "string"
            if not is_vector and not (texts and arrow.is_json_vector(texts[0])):
                return np.array(texts, np.str_)
            values = arrow.parse_vectors(texts)
            warn(f"{at} is JSON text, converted to float64{[values.shape[1]]}")
    except ValueError as error:
        raise ValueError(f"{at}: {error}") from error
    shape = feature["shape"] if feature is not None else None
    if shape is not None and len(values) and values[0].size != np.prod(shape, dtype=int):
        raise ValueError(
            f"{at} has shape {list(values.shape[1:])} in the table, but {shape} in meta/info.json"
        )
    return values


def annotations(
    columns: Mapping[str, pa.ChunkedArray],
    start_s: float,
    cameras: Mapping[str, str],
    where: str,
) -> Language:
    """The language annotations of an episode.

    Args:
        columns: Those of `rrf.data.language.COLUMNS` that are asked for, the episode's rows.
        start_s: The time stamp of its first frame, by which persistent rows go.
        cameras: Feature -> what the caller calls it.
        where: The beginning of every message.
    """
    language = from_columns(columns, where).earlier(start_s)
    names = {row["camera"]: row["camera"] for row in language.rows()}
    return language.renamed(names | dict(cameras), where, "")


def part_of(values: np.ndarray, part: Part, where: str) -> np.ndarray:
    """The dimensions of a vector that meta/modality.json gives a name.

    Raises ValueError if the vector has too few.
    """
    if values.ndim != 2 or part.end > values.shape[1]:
        raise ValueError(
            f"{where}: meta/modality.json takes {part.start}..{part.end} of {part.original_key}, "
            f"which has shape {list(values.shape[1:])}"
        )
    return values[:, part.start : part.end]
