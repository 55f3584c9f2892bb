"""The tables of a LeRobot v3.0 dataset as numpy arrays: frames, episodes, instructions.

Legend: N rows, D dimensions.
"""

import contextlib
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf.data import language
from rrf.data.dataset.layout import TASKS
from rrf.data.files import RemotePath, open_dataset_root
from rrf.data.remedies import again

EPISODE_COLUMNS = (
    "episode_index",
    "tasks",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
)
_Root = typing.TypeVar("_Root", bound=Path | RemotePath)


def data_files(root: str | Path) -> list[Path]:
    """All data files in order. Raises ValueError if there are none."""
    return _files(Path(root), "data")


def read_table(path: Path | RemotePath, columns: Sequence[str] | None = None) -> pa.Table:
    """One parquet file, of a remote one only what the columns need.

    Raises ValueError naming the file if it is truncated or lacks a column.
    """
    with open_parquet(path, columns or ()) as file, readable(path):
        return file.read(list(columns) if columns is not None else None)


@contextlib.contextmanager
def open_parquet(path: Path | RemotePath, columns: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A parquet file that has `columns`, open within the block.

    Raises ValueError naming the file if it is truncated or lacks a column.
    """
    with contextlib.ExitStack() as stack:
        with readable(path):
            if isinstance(path, Path):
                file = stack.enter_context(pq.ParquetFile(path, page_checksum_verification=True))
            else:  # neighbouring columns by one request, which asks for no more than they need
                remote = stack.enter_context(path.open("rb", num_blocks=0))
                file = stack.enter_context(pq.ParquetFile(remote, pre_buffer=True))
        known = file.schema_arrow.names
        missing = [column for column in columns if column not in known]
        if missing:
            raise ValueError(f"{path} has no column '{missing[0]}'; it has: {', '.join(known)}")
        yield file


@contextlib.contextmanager
def readable(path: Path | RemotePath) -> Iterator[None]:
    """Say of errors within the block that the parquet file at `path` cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        what = " ".join(str(error).split())  # on one line
        raise ValueError(f"{path} is truncated or not parquet ({what}); {again(path)}") from error


def read_episodes(root: str | Path | RemotePath) -> pd.DataFrame:
    """The episode table without its statistics, one row per episode.

    Raises:
        ValueError: If it is missing, damaged or lacks a column.
    """
    tables, folder = [], open_dataset_root(root)
    for path in _files(folder, "meta/episodes"):
        with open_parquet(path) as file, readable(path):
            names = file.schema_arrow.names
            tables.append(file.read([name for name in names if not name.startswith("stats/")]))
    with readable(folder / "meta/episodes"):
        episodes = pa.concat_tables(tables).to_pandas()
    lacking = [column for column in EPISODE_COLUMNS if column not in episodes]
    if lacking:
        raise ValueError(
            f"the episode table of {root} has no column '{lacking[0]}'; {again(folder)}"
        )
    return episodes


def read_tasks(root: str | Path | RemotePath) -> list[str]:
    """The instructions, in the order of their task_index.

    Raises ValueError if the table is missing or damaged.
    """
    path = open_dataset_root(root) / TASKS
    if not path.is_file():
        raise ValueError(f"{path} is missing; {again(path)}")
    frame = read_table(path).to_pandas()
    if "task_index" not in frame:
        raise ValueError(f"{path} has no column 'task_index'; {again(path)}")
    return [str(task) for task in task_texts(frame.sort_values("task_index"))]


def task_texts(tasks: pd.DataFrame) -> list:
    """The instructions of a table of tasks: its index, or a column where the index was lost."""
    names = [name for name in ("task", "__index_level_0__") if name in tasks]
    return list(tasks[names[0]] if names else tasks.index)


def read_columns(root: str | Path | RemotePath, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of all data files as arrays: [N, D] for vectors, [N] for scalars.

    Raises:
        ValueError: Naming file or column and row for what cannot be read.
    """
    folder = open_dataset_root(root)
    tables = [read_table(path, columns) for path in _files(folder, "data")]
    with readable(folder / "data"):
        table = pa.concat_tables(tables)
    arrays = {}
    for name in columns:
        try:
            is_vector = is_list(table.schema.field(name).type)
            arrays[name] = as_matrix(table[name]) if is_vector else table[name].to_numpy()
        except ValueError as error:
            raise ValueError(f"{root}: column {name}: {error}") from error
    return arrays


def read_selected(
    root: str | Path | RemotePath,
    key: str,
    rows_n: np.ndarray,
    of: Callable[[pa.ChunkedArray], np.ndarray],
) -> np.ndarray:
    """Some rows of a column of all data files.

    Args:
        root: The dataset's directory.
        key: The column.
        rows_n: The rows, ascending.
        of: Makes an array of what is wanted of the column of one file.

    Raises:
        ValueError: Naming the file that cannot be read or lacks the column.
    """
    parts, first = [], 0
    for path in _files(open_dataset_root(root), "data"):
        with open_parquet(path) as file:
            num_rows = file.metadata.num_rows
        inside = rows_n[(rows_n >= first) & (rows_n < first + num_rows)] - first
        if len(inside):
            parts.append(of(read_table(path, [key])[key].take(pa.array(inside))))
        first += num_rows
    return np.concatenate(parts)


def read_language(
    root: str | Path | RemotePath, episodes: Sequence[tuple[int, int]]
) -> list[dict[str, pa.ChunkedArray]]:
    """The columns of language annotations that the data files have, of each episode.

    Args:
        root: The dataset's directory.
        episodes: First row and end of each, ascending.

    Raises:
        ValueError: Naming the file that cannot be read.
    """
    annotations, first = [], 0
    for path in _files(open_dataset_root(root), "data"):
        with open_parquet(path) as file:
            num_rows, names = file.metadata.num_rows, file.schema_arrow.names
        inside = [(a - first, b - a) for a, b in episodes if first <= a < first + num_rows]
        if inside:
            table = read_table(path, [key for key in language.COLUMNS if key in names])
            names = table.column_names
            annotations += [{key: table[key].slice(*place) for key in names} for place in inside]
        first += num_rows
    return annotations


def as_matrix(column: pa.ChunkedArray) -> np.ndarray:
    """A column as [N, D] (D = 1 for scalars).

    Raises ValueError naming the first row of another length.
    """
    if not is_list(column.type):
        return column.to_numpy()[:, None]
    array = column.combine_chunks()
    if array.null_count:
        raise ValueError(f"row {int(np.argmax(np.asarray(array.is_null())))} is missing")
    lengths = np.asarray(array.value_lengths())
    if len(lengths) and not (lengths == lengths[0]).all():
        row = int(np.argmax(lengths != lengths[0]))
        raise ValueError(f"row {row} has {lengths[row]} values, the rows before have {lengths[0]}")
    dimension = int(lengths[0]) if len(lengths) else 0
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), dimension)


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether a column holds vectors."""
    return pa.types.is_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type)


def _files(root: _Root, folder: str) -> list[_Root]:
    paths = sorted((root / folder).glob("*/*.parquet"), key=chunk_and_file)
    if not paths:
        raise ValueError(f"the dataset at {root} has no files in {folder}/; {again(root)}")
    return typing.cast(list[_Root], paths)


def chunk_and_file(path: Path | RemotePath) -> tuple[int, int]:
    """The numbers in a path that ends in chunk-000/file-000.parquet."""
    return int(path.parent.name.rpartition("-")[2]), int(path.stem.rpartition("-")[2])
