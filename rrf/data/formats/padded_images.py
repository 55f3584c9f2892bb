"""JPEG and PNG files in HDF5: byte strings, arrays of varying length, or rows padded with zeros.

Neither format ends in a zero byte, so the padding can be removed without knowing its length.

Legend: T frames, L bytes, H W image height and width.
"""

import typing
from collections.abc import Sequence

import h5py
import numpy as np

from rrf.data.formats import hdf5
from rrf.data.images import decode_image
from rrf.data.memory import check_fits
from rrf.data.schema import EncodedImages

_MARKS: dict[typing.Literal["jpg", "png"], tuple[bytes, bytes]] = {  # first bytes, last bytes
    "jpg": (b"\xff\xd8", b"\xff\xd9"),
    "png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
}


def is_padded(dataset: h5py.Dataset) -> bool:
    """Whether a dataset has the form of image files: byte strings [T] or uint8 [T, L]."""
    rank = len(dataset.shape or ())
    if rank == 2:
        return dataset.dtype == np.uint8
    is_bytes = dataset.dtype.kind == "S" or h5py.check_vlen_dtype(dataset.dtype) == np.uint8
    return rank == 1 and is_bytes


def read_padded(
    dataset: h5py.Dataset, key: str, where: str, rows: slice = slice(None)
) -> EncodedImages:
    """The images of some rows, without their padding.

    Raises:
        ValueError: For an image that is cut short, or is neither JPEG nor PNG; the message names
            the frame.
    """
    stored = hdf5.read_stored(dataset, key, where, rows)
    blobs = [
        (row if isinstance(row, bytes) else np.asarray(row).tobytes()).rstrip(b"\0")
        for row in stored
    ]
    suffix = "png" if blobs and blobs[0].startswith(_MARKS["png"][0]) else "jpg"
    start, end = _MARKS[suffix]
    for frame, blob in enumerate(blobs):
        if not blob.startswith(start):
            raise ValueError(
                f"{where}: {key} at frame {frame} is not a {suffix} image: {blob[:8]!r}; "
                "expected uint8[T, H, W, 3], or JPEG or PNG padded with zeros"
            )
        if not blob.endswith(end):
            raise ValueError(f"{where}: {key} at frame {frame} is a {suffix} image cut short")
    return EncodedImages(blobs, suffix)


def describe_padded(dataset: h5py.Dataset, key: str, where: str) -> str:
    """The type of a frame, such as "image[480, 640]", judged by the first one."""
    first = read_padded(dataset, key, where, slice(0, 1))
    height, width, _ = decode_all(first.blobs, f"{where}: {key}").shape[1:]
    return f"image[{height}, {width}]"


def decode_all(blobs: Sequence[bytes], where: str) -> np.ndarray:
    """The pixels, uint8 [T, H, W, 3].

    Raises:
        ValueError: For a frame that is damaged or of another size, naming the frame; or if there
            are none.
    """
    decoded: list[np.ndarray] = []
    for frame, blob in enumerate(blobs):
        try:
            image = decode_image(blob)
        except ValueError as error:
            raise ValueError(f"{where} at frame {frame}: {error}") from error
        if decoded and image.shape != decoded[0].shape:
            raise ValueError(
                f"{where} at frame {frame} is {list(image.shape)}, "
                f"frame 0 is {list(decoded[0].shape)}"
            )
        if not decoded:
            check_fits((len(blobs), *image.shape), 1, f"{where}, decoded to uint8")
        decoded.append(image)
    if not decoded:
        raise ValueError(f"{where} has no frames")
    return np.stack(decoded)
