"""Reads `features.json` of a TFDS dataset and makes arrays of an Example's lists.

The file is a tree of features (tensorflow_datasets/core/proto/feature.proto as JSON). A leaf is
stored under its path joined by "/", all steps of an episode in one list:

    Tensor, Scalar, ClassLabel, BBoxFeature   numbers, flattened: floats (float64 too) as float32,
                                              integers and bools as int64; with the encoding "bytes"
                                              or "zlib" one blob of raw little-endian items per step
    Text, Tensor of strings                   a blob of UTF-8 per text
    Image                                     a PNG or JPEG file per step, whatever was declared;
                                              grey ones (uint8 or uint16, one channel) are numbers
    Sequence within the steps                 numbers under PATH/ragged_flat_values; read where the
                                              length is fixed

Some leaves have no array form: sequences or tensors of unknown length, images of other channels
or of floats, Video, Audio and Translation. They are not offered, and the error for such a key says
why.

Legend: T steps, H W image height and width.
"""

import dataclasses
import math
import typing
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rrf.data.dataset.maps import decode_map
from rrf.data.formats.tf_example import Feature
from rrf.data.image_header import read_image_header
from rrf.data.images import decode_image
from rrf.data.schema import EncodedImages

STEPS = "steps"
_UNKNOWN = -1
_TEXT_DTYPES = ("string", "object")
_NUMBERS = frozenset(np.dtype(code).name for code in "?bBhHiIqQefd")
_RAGGED = "ragged_flat_values"


@dataclasses.dataclass(frozen=True)
class Column:
    """A leaf that can be read."""

    key: str  # its path, without "steps/"
    name: str  # its name in the Example
    kind: typing.Literal["numbers", "blobs", "text", "images", "grey"]
    shape: tuple[int, ...]  # of a step; for images H and W, -1 where unknown
    dtype: str = ""  # of numbers and blobs
    is_compressed: bool = False
    is_step: bool = True

    def __str__(self) -> str:
        """The type in the words of `Source.keys`."""
        if self.is_image:
            return f"image{list(self.shape[:2])}"
        if self.kind == "text":
            return f"text{list(self.shape)}" if self.shape else "text"
        return f"{self.dtype}{list(self.shape)}"

    @property
    def is_image(self) -> bool:
        """Whether its steps are RGB images, compressed or not."""
        is_rgb = self.dtype == "uint8" and len(self.shape) == 3 and self.shape[2] == 3
        return self.kind == "images" or (is_rgb and self.is_step)

    def num_steps(self, feature: Feature) -> int:
        """How many steps a list holds.

        Raises:
            ValueError: For a list of another type, or one that ends within a step.
        """
        if self.kind != "numbers":
            stored = "bytes_list"
        else:
            stored = "float_list" if np.dtype(self.dtype).kind == "f" else "int64_list"
        if feature.kind not in (stored, "empty"):
            raise ValueError(f"is a {feature.kind}, features.json says {self}")
        items = math.prod(self.shape) if self.kind in ("numbers", "text") else 1
        num_steps, rest = divmod(len(feature), items)
        if rest:
            raise ValueError(f"holds {len(feature)} items, not a multiple of {items}, for {self}")
        return num_steps

    def read(self, feature: Feature) -> np.ndarray | EncodedImages:
        """The steps of a list, [T, ...].

        Raises:
            ValueError: As `num_steps` does, and for damaged items, naming the step.
        """
        self.num_steps(feature)
        if self.kind == "text":
            return _read_text(feature.blobs(), self.shape)
        if self.kind == "images":
            return _read_images(feature.blobs(), self.shape)
        if self.kind == "grey":
            return _read_grey(feature.blobs(), self)
        if self.kind == "blobs":
            return _read_blobs(feature.blobs(), self)
        return feature.numbers().reshape(-1, *self.shape).astype(self.dtype)


def read_features(root: dict, path: Path) -> tuple[dict[str, Column], dict[str, str]]:
    """The columns of a features.json by key, and the reasons why the other leaves are not columns.

    Raises:
        ValueError: If the file is not of this layout, or holds no steps.
    """
    features = _features(root, "the top level", path)
    steps = features.get(STEPS)
    if not isinstance(steps, dict) or "sequence" not in steps:
        raise ValueError(
            f"{path} has no '{STEPS}' that is a Dataset or Sequence, so this is not RLDS; found: "
            f"{', '.join(features) or 'nothing'}"
        )
    columns: dict[str, Column] = {}
    refused: dict[str, str] = {}
    for names, lengths, leaf in _leaves(root, (), (), path):
        is_step = names[0] == STEPS
        key = "/".join(names[1:] if is_step else names)
        if key in columns:
            continue  # a key of the steps comes first and is kept
        try:
            columns[key] = _column(key, names, lengths, leaf)
        except _NoArrayError as reason:
            refused[key] = str(reason)
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: '{key}' is not described as TFDS does ({error})") from error
    return columns, refused


class _NoArrayError(Exception):
    """A leaf has no array form."""


def _leaves(
    node: dict, names: tuple[str, ...], lengths: tuple[int, ...], path: Path
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], dict]]:
    """Path, lengths of the sequences around it and content of each leaf. Those of the steps come
    first.
    """
    where = "/".join(names) or "the top level"
    if "featuresDict" in node:
        features = _features(node, where, path)
        for name in sorted(features, key=lambda name: name != STEPS):
            yield from _leaves(_mapping(features, name, where, path), (*names, name), lengths, path)
    elif "sequence" in node:
        sequence = _mapping(node, "sequence", where, path)
        lengths = (*lengths, int(sequence.get("length", _UNKNOWN)))
        yield from _leaves(_mapping(sequence, "feature", where, path), names, lengths, path)
    else:
        yield names, lengths, node


def _features(node: dict, where: str, path: Path) -> dict:
    return _mapping(_mapping(node, "featuresDict", where, path), "features", where, path)


def _mapping(node: dict, name: str, where: str, path: Path) -> dict:
    part = node.get(name)
    if not isinstance(part, dict):
        raise ValueError(
            f"{path}: {where} has no mapping '{name}'; the file is damaged or from an old "
            "tensorflow_datasets: load the dataset with a recent one and save it again"
        )
    return part


def _column(key: str, names: tuple[str, ...], lengths: tuple[int, ...], leaf: dict) -> Column:
    is_step = names[0] == STEPS
    inner = lengths[1:] if is_step else lengths
    if _UNKNOWN in inner:
        raise _NoArrayError("is a sequence without a fixed length (ragged), so it is not an array")
    name = "/".join(names if len(lengths) < 2 else (*names, _RAGGED))
    if "image" in leaf:
        if inner or not is_step:
            raise _NoArrayError("holds images that are not one per step")
        shape, dtype = _image_shape(leaf["image"])
        if shape[2] == 1:
            return Column(key=key, name=name, kind="grey", shape=shape, dtype=dtype)
        return Column(key=key, name=name, kind="images", shape=shape[:2])
    if "text" in leaf:
        return Column(key=key, name=name, kind="text", shape=inner, is_step=is_step)
    dtype, shape, encoding = _tensor(leaf)
    if _UNKNOWN in shape:
        raise _NoArrayError(f"has the shape {list(shape)}, which is not the same in every step")
    shape = (*inner, *shape)
    if 0 in shape:
        raise _NoArrayError(f"has the shape {list(shape)}, which holds nothing")
    if dtype in _TEXT_DTYPES:
        return Column(key=key, name=name, kind="text", shape=shape, is_step=is_step)
    if encoding != "none" and inner:
        raise _NoArrayError(f"is a sequence of tensors encoded as {encoding}")
    return Column(
        key=key,
        name=name,
        kind="numbers" if encoding == "none" else "blobs",
        shape=shape,
        dtype=dtype,
        is_compressed=encoding == "zlib",
        is_step=is_step,
    )


def _tensor(leaf: dict) -> tuple[str, tuple[int, ...], str]:
    if "classLabel" in leaf:
        return "int64", (), "none"
    content = leaf.get("tensor", leaf.get("boundingBox"))
    if content is None:
        name = str(leaf.get("pythonClassName", "feature of no class")).rpartition(".")[2]
        raise _NoArrayError(f"is a {name}, which is not read")
    dtype, encoding = content.get("dtype", "float32"), content.get("encoding") or "none"
    if encoding not in ("none", "bytes", "zlib"):
        raise _NoArrayError(f"has the unknown encoding {encoding!r}")
    if dtype not in _TEXT_DTYPES and dtype not in _NUMBERS:
        raise _NoArrayError(f"has the dtype {dtype}, which numpy does not have")
    return dtype, _dimensions(content), encoding


def _dimensions(content: dict) -> tuple[int, ...]:
    return tuple(int(size) for size in content.get("shape", {}).get("dimensions", ()))


def _image_shape(content: dict) -> tuple[tuple[int, ...], str]:
    shape = _dimensions(content) or (_UNKNOWN, _UNKNOWN, 3)
    dtype = content.get("dtype", "uint8")
    if (dtype, *shape[2:]) not in (("uint8", 3), ("uint8", 1), ("uint16", 1)):
        raise _NoArrayError(
            f"holds images of {dtype}{list(shape)}, neither of uint8[H, W, 3] nor grey ones of "
            "uint8 or uint16"
        )
    return shape, dtype


def _read_text(blobs: list[bytes], shape: tuple[int, ...]) -> np.ndarray:
    decoded: dict[bytes, str] = {}  # most steps repeat the text of the one before
    for index, blob in enumerate(blobs):
        if blob not in decoded:
            try:
                decoded[blob] = blob.decode("utf-8")
            except UnicodeDecodeError as error:
                step = index // math.prod(shape)
                raise ValueError(f"at step {step} is not UTF-8 ({error}): {blob[:40]!r}") from error
    return np.array([decoded[blob] for blob in blobs], np.str_).reshape(-1, *shape)


def _read_blobs(blobs: list[bytes], column: Column) -> np.ndarray:
    dtype = np.dtype(column.dtype).newbyteorder("<")
    size = math.prod(column.shape) * dtype.itemsize
    items = bytearray()
    for step, blob in enumerate(blobs):
        item = _inflate(blob, size, step) if column.is_compressed else blob
        if len(item) != size:
            raise ValueError(f"at step {step} holds {len(item)} bytes, not the {size} of {column}")
        items += item
    return np.frombuffer(items, dtype).reshape(-1, *column.shape)


def _inflate(blob: bytes, size: int, step: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(blob, size + 1)  # no more, whatever is in it
    except zlib.error as error:
        raise ValueError(f"at step {step} is not zlib ({error})") from error


def _read_grey(blobs: list[bytes], column: Column) -> np.ndarray:
    values = decode_map(EncodedImages(blobs, "png"), f"is {column}, but")[..., None]
    shapes = zip(values.shape[1:], column.shape, strict=True)
    if values.dtype != column.dtype or any(of not in (_UNKNOWN, shape) for shape, of in shapes):
        raise ValueError(
            f"holds {values.dtype}{list(values.shape[1:])}, features.json says {column}"
        )
    return values


def _read_images(blobs: list[bytes], size: tuple[int, ...]) -> np.ndarray | EncodedImages:
    headers = []
    for step, blob in enumerate(blobs):
        try:
            headers.append(read_image_header(blob))
        except ValueError as error:
            raise ValueError(f"at step {step}: {error}") from error
        shape, first = list(headers[-1].size), headers[0].size
        expected = [of if of != _UNKNOWN else first[axis] for axis, of in enumerate(size)]
        if shape != expected:
            raise ValueError(f"at step {step} is an image of {shape}, expected {expected}")
    suffixes = {header.suffix for header in headers}
    if len(suffixes) == 1:
        return EncodedImages(blobs, headers[0].suffix)
    return np.stack([decode_image(blob) for blob in blobs])  # some JPEG, some PNG
