"""Parquet columns of recordings as numpy arrays: vectors, nested lists, text, vectors written as
JSON text, and encoded images.

A column of one of Arrow's extension types is read as what it is stored as. Of parquet's logical
type JSON this is JSON text, except for strings, which are the text itself then.

Every error says which row is wrong; the caller adds file, episode and key.

Legend: T rows.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.image_header import read_image_header
from rrf.data.memory import check_fits, no_room
from rrf.data.schema import EncodedImages


def read_parquet(
    path: Path, required: Iterable[str], optional: Iterable[str] = (), num_rows: int | None = None
) -> pa.Table:
    """Columns of one parquet file, or of its first rows.

    Args:
        path: The file.
        required: Columns it must have.
        optional: Columns that are read if it has them.
        num_rows: Read about this many rows from the top; all by default.

    Raises:
        ValueError: If the file is truncated or lacks a column; the message names the file.
    """
    with _opened(path) as file:
        known = file.schema_arrow.names
        for column in required:
            if column not in known:
                raise ValueError(f"{path} has no column '{column}'{did_you_mean(column, known)}")
        columns = [name for name in dict.fromkeys((*required, *optional)) if name in known]
        if num_rows is None:
            check_fits([_stored_bytes(file, columns)], 1, f"{path}: {', '.join(columns)}, uint8")
            return _as_stored(file.read(columns))
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        first = next(file.iter_batches(num_rows, columns=columns), None)
        return _as_stored(pa.Table.from_batches([] if first is None else [first], schema))


def read_schema(path: Path) -> pa.Schema:
    """The columns of a parquet file. Raises ValueError as `read_parquet` does."""
    with _opened(path) as file:
        return file.schema_arrow


def value_range(path: Path, column: str) -> tuple[int, int] | None:
    """The smallest and the largest number in a column, as a rule from the file's footer alone; None
    if the file cannot be read or has no such column.
    """
    try:
        with _opened(path) as file:
            groups = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
            found = [chunk.statistics for chunk in chunks if chunk.path_in_schema == column]
            ends = [end for known in found if known for end in (known.min, known.max)]
            if None in ends or len(ends) < 2 * len(groups):
                ends = file.read([column])[column].drop_null().to_pylist()
    except (ValueError, KeyError):  # damage is reported when the file is read
        return None
    return (min(ends), max(ends)) if ends else None


def is_image(arrow_type: pa.DataType) -> bool:
    """Whether a column holds encoded images: bytes, or a struct of bytes and path."""
    if pa.types.is_struct(arrow_type):
        return {"bytes", "path"} <= {field.name for field in arrow_type}
    return pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether a column holds strings."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    types = pa.types
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(arrow_type) for is_kind in kinds)


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers, bools or lists of them, of any depth, as [T, ...] in their own dtype.

    Raises:
        ValueError: Naming the first row that is missing, or has another length than the rows
            before, or a type that is not a number.
    """
    array, shape = _joined(column), [len(column)]
    while _is_list(array.type):
        _check_present(array, shape)
        lengths = np.asarray(array.value_lengths())
        wrong = np.flatnonzero(lengths != lengths[0]) if len(lengths) else []
        if len(wrong):
            row = int(wrong[0]) // int(np.prod(shape[1:]))
            raise ValueError(
                f"row {row} has {lengths[wrong[0]]} values, the rows before have {lengths[0]}"
            )
        shape.append(int(lengths[0]) if len(lengths) else 0)
        array = array.flatten()
    _check_present(array, shape)
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not is_number and not pa.types.is_boolean(array.type):
        raise ValueError(f"values of type {array.type} are not supported, only numbers and text")
    return array.to_numpy(zero_copy_only=False).reshape(shape)


def texts(column: pa.ChunkedArray) -> list[str]:
    """Strings. Raises ValueError naming the first row that is missing or not UTF-8."""
    array = _joined(column)
    _check_present(array, [len(array)])
    values = []
    for row, value in enumerate(array):
        try:
            values.append(value.as_py())
        except UnicodeDecodeError as error:
            raise ValueError(f"row {row} is not UTF-8 ({error})") from error
    return values


def is_json_vector(text: str) -> bool:
    """Whether a string is a JSON list of numbers."""
    try:
        return text.lstrip().startswith("[") and _parse_vector(text) is not None
    except ValueError:
        return False


def parse_vectors(rows: list[str]) -> np.ndarray:
    """Vectors, or single numbers, written as JSON text, as float64 [T, D].

    Raises ValueError naming the first row that is not a list of numbers, or has another length.
    """
    vectors: list[list[float]] = []
    for row, text in enumerate(rows):
        try:
            vector = _parse_vector(text)
        except ValueError as error:
            raise ValueError(f"row {row} is not JSON ({error})") from error
        if vector is None:
            raise ValueError(f"row {row} is {text[:40]!r}, expected a JSON list of numbers")
        if len(vector) != len((vectors or [vector])[0]):
            raise ValueError(
                f"row {row} has {len(vector)} values, the rows before have {len(vectors[0])}"
            )
        vectors.append(vector)
    return np.array(vectors, np.float64).reshape(len(vectors), -1)


def encoded_images(column: pa.ChunkedArray, find: Callable[[str], Path]) -> EncodedImages:
    """Encoded images. An image without bytes is read from `find(its path)`.

    Raises ValueError naming the first row that is missing, neither PNG nor JPEG, or of another kind
    than the rows before.
    """
    array = _joined(column)
    blobs, suffixes = [], []
    for row, value in enumerate(array.to_pylist()):
        if isinstance(value, dict):
            path, value = value["path"], value["bytes"]
            if value is None and path:
                value = _read_file(find(path), row)
        if not value:
            raise ValueError(f"row {row} is missing")
        try:
            suffixes.append(read_image_header(value).suffix)
        except ValueError as error:
            raise ValueError(f"row {row} holds {error}") from error
        blobs.append(value)
        if suffixes[-1] != suffixes[0]:
            raise ValueError(f"row {row} is {suffixes[-1]}, the rows before are {suffixes[0]}")
    return EncodedImages(blobs, suffixes[0] if suffixes else "png")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except pa.ArrowMemoryError as error:
        raise no_room(str(path), error) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: column names
        raise ValueError(
            f"{path} is truncated or not parquet ({error}); download it again"
        ) from error


def _stored_bytes(file: pq.ParquetFile, columns: list[str]) -> int:
    """The size of some columns without compression, which is less than they have in memory."""
    groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
    stored = [group.column(place) for group in groups for place in range(group.num_columns)]
    return sum(
        chunk.total_uncompressed_size
        for chunk in stored
        if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns)
    )


def _as_stored(table: pa.Table) -> pa.Table:
    for place, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            column = table.column(place).cast(field.type.storage_type)
            if isinstance(field.type, pa.JsonType):
                column = _json_strings(column)
            table = table.set_column(place, field.name, column)
    return table


def _json_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The strings themselves, if the JSON texts of a column are strings."""
    try:
        values = [text and atomic.parse_json(text) for text in column.to_pylist()]
    except ValueError:  # reported when the column is used
        return column
    are_strings = all(value is None or isinstance(value, str) for value in values)
    return pa.chunked_array([pa.array(values, pa.string())]) if are_strings else column


def _read_file(path: Path, row: int) -> bytes:
    if not path.is_file():
        raise ValueError(f"row {row}: the image {path} is missing")
    return path.read_bytes()


def _parse_vector(text: str) -> list[float] | None:
    values = atomic.parse_json(text)
    values = [values] if isinstance(values, int | float) else values
    is_vector = isinstance(values, list) and all(isinstance(v, int | float) for v in values)
    return [float(value) for value in values] if is_vector else None


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _is_list(arrow_type: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
        or types.is_large_list(arrow_type)
    )


def _check_present(array: pa.Array, shape: list[int]) -> None:
    if array.null_count:
        place = int(np.argmax(np.asarray(array.is_null())))
        raise ValueError(f"row {place // max(1, int(np.prod(shape[1:])))} is missing")
