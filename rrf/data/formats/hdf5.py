"""HDF5 files that came from somewhere else: what is in them, and errors that say where it is wrong.

Only the opened file is read. HDF5 can point at other files by external links, by datasets whose
bytes lie elsewhere and by virtual datasets; all three are refused. Text must be valid UTF-8.

An array is read only if it fits into memory.

Legend: T frames of an episode, H W image height and width.
"""

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.memory import check_fits, no_room
from rrf.data.remedies import bring
from rrf.data.schema import EncodedImages

Node = h5py.Group | h5py.Dataset

_HARD, _SOFT = h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT  # type: ignore[attr-defined]
_MAX_DEPTH = 32  # groups within groups, and links that lead to links
_DAMAGE = (OSError, RuntimeError, LookupError, TypeError, ValueError, OverflowError)
_ALL = slice(None)
_PICKLES = (".pkl", ".pickle")
_NEVER = (
    "is a pickle, which runs code when it is read; it is never loaded. Convert it to HDF5 where it "
    "was made"
)
_AGAIN = "copy it again from where it came; if DVC has it: dvc pull --force"


def find_files(path: Path, pattern: str) -> list[Path]:
    """The file `path`, or the files in the directory `path` that match, in alphabetical order.

    Raises:
        ValueError: If there are none (with the commands that bring them), for a pattern that
            leads out of the directory, and for pickles, unless they lie beside what was wanted.
    """
    if path.suffix in _PICKLES:
        raise ValueError(f"{path} {_NEVER}")
    if path.is_file():
        return [path]
    if path.suffix in (".hdf5", ".h5"):
        raise ValueError(_missing(path))
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ValueError(f"pattern '{pattern}' leads out of {path}")
    paths = sorted(file for file in path.glob(pattern) if file.is_file())
    if not paths:
        others = sorted(file for file in path.rglob("[!.]*") if file.is_file())
        pickles = [file for file in others if file.suffix in _PICKLES]
        if pickles:
            raise ValueError(f"{path} holds no {pattern}, and {pickles[0]} {_NEVER}")
        there = f" (it holds {others[0].relative_to(path)}, ...)" if others else ""
        raise ValueError(f"no recordings {pattern} in {path}{there}; {bring(path)}")
    return paths


def by_number(path: Path) -> list[int | str]:
    """A key for sorting that puts episode_2 before episode_10."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [int(part) if part.isdecimal() else part for part in parts]


def recording_name(path: Path, root: Path) -> str:
    """A file's name within the source, the same on every machine."""
    name = path.relative_to(root).as_posix() if root != path else path.name
    return name.removesuffix(".hdf5")


def open_file(path: Path) -> h5py.File:
    """The file, for reading. Raises ValueError if it is missing, truncated or no HDF5 at all."""
    if not path.is_file():
        raise ValueError(_missing(path))
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is truncated or not HDF5 ({error}); {_AGAIN}") from error


def find(group: h5py.Group, key: str, where: str) -> Node | None:
    """The group or dataset at `key`, None if there is none.

    Raises ValueError for a link that leads to another file or nowhere.
    """
    return _resolve(group, key, f"{where}: {key}", 0)


def names(group: h5py.Group, where: str) -> list[str]:
    """What a group holds. Raises ValueError if it is damaged or a name is not UTF-8."""
    with _naming_damage(where):
        keys = list(group)
    for name in keys:
        if not isinstance(name, str):
            raise ValueError(f"{where} holds {name!r}, which is not UTF-8")
    return keys


def numbered(group: h5py.Group, prefix: str, where: str) -> list[str]:
    """What in a group is called PREFIX0, PREFIX1, ..., in the order of the numbers."""
    members = [name for name in names(group, where) if re.fullmatch(rf"{prefix}\d+", name)]
    return sorted(members, key=lambda name: int(name.removeprefix(prefix)))


def list_datasets(group: h5py.Group, where: str) -> dict[str, h5py.Dataset]:
    """All datasets below a group by key, "obs/eef_pos". Raises ValueError as `find` does."""
    top = group["/"] if isinstance(group, h5py.File) else group
    assert isinstance(top, h5py.Group)
    return dict(_walk(top, "", where, (top,)))


def describe(dataset: h5py.Dataset) -> str | None:
    """What one frame of a dataset is, "float32[7]", "image[480, 640]" or "text".

    None for what has no frames (a single number) and for types that numpy cannot hold.
    """
    if not dataset.shape:
        return None
    if h5py.check_string_dtype(dataset.dtype):
        return "text"
    if dataset.dtype.kind not in "biuf":
        return None
    if _is_rgb(dataset):
        height, width = dataset.shape[2:] if _is_channel_first(dataset) else dataset.shape[1:3]
        return f"image[{height}, {width}]"
    return f"{dataset.dtype}{list(dataset.shape[1:])}"


def read(group: h5py.Group, key: str, where: str, rows: slice = _ALL) -> np.ndarray:
    """A dataset as recorded, or some of its rows; text becomes a numpy array of strings.

    Raises:
        ValueError: If there is no such dataset (with the closest there is), it is damaged, it lies
            in another file, or its text is not UTF-8.
    """
    dataset = find(group, key, where)
    if not isinstance(dataset, h5py.Dataset):
        raise unknown_key(key, list_datasets(group, where), where)
    values = read_stored(dataset, key, where, rows)
    if h5py.check_string_dtype(dataset.dtype):
        texts = [text(value, f"{where}: {key}") for value in np.asarray(values).flat]
        return np.array(texts, np.str_).reshape(np.shape(values))
    if dataset.dtype.kind not in "biuf":
        raise ValueError(f"{where}: {key} holds {dataset.dtype}, expected numbers or text")
    return values


def read_stored(dataset: h5py.Dataset, key: str, where: str, rows: slice = _ALL) -> np.ndarray:
    """A dataset, or some of its rows, as h5py gives it, text as bytes.

    Raises ValueError as `read` does, and for what does not fit into memory.
    """
    elsewhere = [name for name, *_ in dataset.external or ()]
    if dataset.is_virtual:
        elsewhere += [s.file_name for s in dataset.virtual_sources() if s.file_name != "."]
    if elsewhere:
        raise ValueError(
            f"{where}: {key} lies in another file ({elsewhere[0]}), which is not read; "
            "copy its values into this one"
        )
    if dataset.shape is None:
        raise ValueError(f"{where}: {key} is empty")
    shape = dataset.shape
    if shape:
        shape = (len(range(*rows.indices(shape[0]))), *shape[1:])
    check_fits(shape, dataset.dtype.itemsize, f"{where}: {key} {dataset.dtype}")
    with _naming_damage(f"{where}: {key}"):
        return dataset[rows] if dataset.shape else dataset[()]


def unknown_key(key: str, known: Iterable[str], where: str) -> ValueError:
    """The error about a key that is not there."""
    return ValueError(f"{where} has no key '{key}'{did_you_mean(key, known)}")


def channels_last(values: np.ndarray) -> np.ndarray:
    """uint8 [T, 3, H, W] as [T, H, W, 3]; everything else unchanged.

    Images are channel first if the second axis, and not the last, has 3 entries.
    """
    if _is_rgb(values) and _is_channel_first(values):
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))
    return values


def arrays_and_images(
    columns: Iterable[tuple[str, np.ndarray | EncodedImages]],
    where: str,
    have_same_rows: bool = True,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray | EncodedImages]]:
    """The columns of an episode, those with pixels apart from the others.

    Args:
        columns: Key and values.
        where: The beginning of every message.
        have_same_rows: Whether columns of different lengths are refused.

    Raises:
        ValueError: For pixels that are no RGB images, and for columns that are empty or of
            different lengths.
    """
    arrays: dict[str, np.ndarray] = {}
    images: dict[str, np.ndarray | EncodedImages] = {}
    first = None
    for key, values in columns:
        if not isinstance(values, EncodedImages) and values.ndim == 0:
            raise ValueError(f"{where}: {key} is a single value, expected one per frame")
        if first is None:
            first = key, len(values)
            if not len(values):
                raise ValueError(f"{where} has no frames ({key} is empty)")
        elif len(values) != first[1] and have_same_rows:
            hint = "every key needs one value per frame"
            if abs(len(values) - first[1]) == 1:
                hint += (
                    "; a last one that was seen after the last action is dropped by options: "
                    "{drop_final: true} of HDF5 formats"
                )
            raise ValueError(
                f"{where}: {key} has {len(values)} frames, but {first[0]} has {first[1]}; {hint}"
            )
        if isinstance(values, EncodedImages) or _is_image(values, key, where):
            images[key] = values
        else:
            arrays[key] = values
    return arrays, images


def text(value, where: str) -> str:
    """A string from what h5py gives for one. Raises ValueError unless it is valid UTF-8."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if not isinstance(value, str | bytes):
        raise ValueError(f"{where} is {type(value).__name__} {value!r}, expected text")
    try:  # h5py hides bad bytes of a str in surrogates
        content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return content.decode("utf-8")
    except UnicodeError as error:
        raise ValueError(f"{where} is not valid UTF-8: {value[:40]!r}") from error


def attribute(node: Node, name: str, where: str):
    """An attribute of a group, None if it is missing or empty."""
    with _naming_damage(f"{where}: attribute '{name}' of {node.name}"):
        value = node.attrs[name] if name in node.attrs else h5py.Empty("f4")
    return None if isinstance(value, h5py.Empty) else value


def text_attribute(nodes: Iterable[Node], name: str, where: str) -> str | None:
    """The attribute of the first group that has it with something in it."""
    for node in nodes:
        value = attribute(node, name, where)
        if value is not None:
            value = text(value, f"{where}: attribute '{name}' of {node.name}")
            if value.strip():
                return value
    return None


def number_attribute(nodes: Iterable[Node], name: str, where: str) -> float | None:
    """The attribute of the first group that has it. Raises ValueError as `number` does."""
    for node in nodes:
        value = attribute(node, name, where)
        if value is not None:
            return number(value, f"{where}: attribute '{name}' of {node.name}")
    return None


def number(value, where: str) -> float:
    """A number from what h5py or JSON gives for one. Raises ValueError unless it is finite."""
    try:
        scalar = float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} is {value!r}, expected a number") from error
    if not math.isfinite(scalar):
        raise ValueError(f"{where} is {scalar}, expected a number")
    return scalar


def json_attribute(node: Node, name: str, where: str) -> dict:
    """An attribute that holds a JSON object; {} if it is missing."""
    content = text_attribute((node,), name, where)
    if content is None:
        return {}
    try:
        value = atomic.parse_json(content)
    except ValueError as error:
        raise ValueError(
            f"{where}: attribute '{name}' of {node.name} is not JSON: {error}"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: attribute '{name}' of {node.name} is no JSON object")
    return value


@contextlib.contextmanager
def _naming_damage(where: str) -> Iterator[None]:
    """What h5py raises on damaged files as a ValueError that names the place."""
    try:
        yield
    except MemoryError as error:
        raise no_room(where, error) from error
    except _DAMAGE as error:
        raise ValueError(f"{where} is damaged ({error}); {_AGAIN}") from error


def _missing(path: Path) -> str:
    return f"no recording at {path}; {bring(path)}"


def _is_image(values: np.ndarray, key: str, where: str) -> bool:
    if values.dtype != np.uint8 or values.ndim < 3:
        return False
    if values.ndim == 3 or 1 in values.shape[1::2]:  # one number per pixel: a mask, infrared
        return False
    if values.ndim != 4 or values.shape[3] != 3:
        hint = ""
        if values.ndim == 4 and 4 in values.shape[1::2]:
            hint = "; if the fourth channel is alpha, write options: {drop_alpha: true}"
        raise ValueError(
            f"{where}: {key} is uint8{list(values.shape)}, "
            f"expected images uint8[T, H, W, 3] or uint8[T, 3, H, W]{hint}"
        )
    return True


def _is_rgb(values: h5py.Dataset | np.ndarray) -> bool:
    return values.dtype == np.uint8 and len(values.shape) == 4 and 3 in values.shape[1::2]


def _is_channel_first(values: h5py.Dataset | np.ndarray) -> bool:
    return values.shape[1] == 3 and values.shape[3] != 3


def _resolve(group: h5py.Group, key: str, where: str, depth: int) -> Node | None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is a link that leads to itself")
    node: Node | None = group
    for part in key.split("/"):
        if part in ("", "."):
            continue
        if not isinstance(node, h5py.Group):
            return None
        with _naming_damage(where):
            name = part.encode()
            if not node.id.links.exists(name):
                return None
            kind = node.id.links.get_info(name).type
            child = node[part] if kind == _HARD else None
            if isinstance(child, h5py.Dataset):
                child.dtype  # noqa: B018 (fails here where the description of the type is damaged)
            target = b"" if kind == _HARD else node.id.links.get_val(name)
        if kind == _HARD:
            node = child if isinstance(child, Node) else None
        elif kind == _SOFT:
            target = target.decode("utf-8", "replace")
            start = node.file["/"] if target.startswith("/") else node
            assert isinstance(start, h5py.Group)
            node = _resolve(start, target, where, depth + 1)
            if node is None:
                raise ValueError(f"{where} is a link to {target}, where nothing is")
        else:
            raise ValueError(f"{where} is a link to another file ({target}), which is not followed")
    return node


def _walk(
    group: h5py.Group, prefix: str, where: str, parents: tuple[h5py.Group, ...]
) -> Iterator[tuple[str, h5py.Dataset]]:
    for name in names(group, f"{where}: {prefix or '/'}"):
        node = _resolve(group, name, f"{where}: {prefix}{name}", 0)
        if isinstance(node, h5py.Dataset):
            yield prefix + name, node
        elif node is not None:
            if node in parents or len(parents) > _MAX_DEPTH:
                raise ValueError(f"{where}: {prefix}{name} is a link that leads to itself")
            yield from _walk(node, f"{prefix}{name}/", where, (*parents, node))
