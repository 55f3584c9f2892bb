"""Images as bytes: PNG encoded and decoded in numpy and zlib, JPEG decoded.

Every row is stored as its difference to the row above (PNG filter 2, "up"), which numpy does for
whole images at once. On 64x64 renderings this encodes 3x faster than Pillow at about the same size
and decodes 2x faster; the same pixels always give the same bytes. JPEG is decoded by OpenCV, which
gives Pillow's pixels in half the time. Whatever is not plain is decoded by Pillow.

Legend: T images, H height, W width.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image, UnidentifiedImageError

from rrf.data.image_header import read_image_header

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP = 2
_COMPRESSION_LEVEL = 4
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_DATA_START = 41  # signature 8, IHDR chunk 25, IDAT length and name 8


def encode_png(images_thwc: np.ndarray) -> list[bytes]:
    """One lossless PNG per image of uint8 [T, H, W, 3]."""
    assert images_thwc.dtype == np.uint8
    assert images_thwc.shape[3:] == (3,)
    num, height, width, _ = images_thwc.shape
    rows = images_thwc.reshape(num, height, width * 3)
    filtered = np.empty((num, height, 1 + width * 3), np.uint8)
    filtered[:, :, 0] = _UP
    filtered[:, 0, 1:] = rows[:, 0]
    np.subtract(rows[:, 1:], rows[:, :-1], out=filtered[:, 1:, 1:])
    head = _SIGNATURE + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    tail = _chunk(b"IEND", b"")
    return [
        head + _chunk(b"IDAT", zlib.compress(image.tobytes(), _COMPRESSION_LEVEL)) + tail
        for image in filtered
    ]


def decode_image(blob: bytes) -> np.ndarray:
    """The uint8 [H, W, 3] pixels of an encoded image.

    Raises:
        ValueError: If the bytes are no image, or a damaged one.
    """
    return decode_rgb(blob)[0]


def decode_rgb(blob: bytes) -> tuple[np.ndarray, bool]:
    """The uint8 [H, W, 3] pixels of an encoded image, and whether the file itself is plain RGB
    (not grey, with transparency, a palette or CMYK).

    Raises:
        ValueError: If the bytes are no image, or a damaged one.
    """
    is_jpeg = blob.startswith(_JPEG_START)
    pixels = _decode_plain_jpeg(blob) if is_jpeg else _decode_up_filtered(blob)
    if pixels is not None:
        return pixels, True
    try:
        with Image.open(io.BytesIO(blob)) as image:
            return np.asarray(image.convert("RGB")), image.mode == "RGB"
    except UnidentifiedImageError:  # its message holds a memory address
        raise ValueError(f"{len(blob)} bytes of no known image format") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{len(blob)} bytes of a damaged image ({error})") from error


def resize(image_hwc: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A uint8 image at another (height, width): every pixel is the mean of the area it covers."""
    import cv2  # Pillow's box filter counts whole pixels and rounds twice

    height, width = size
    return cv2.resize(image_hwc, (width, height), interpolation=cv2.INTER_AREA)


def _decode_plain_jpeg(blob: bytes) -> np.ndarray | None:
    """The pixels of a JPEG of three components that goes to its end, None for any other file:
    OpenCV makes up what is missing, and turns other colours into RGB in ways of its own.
    """
    import cv2

    try:
        is_plain = read_image_header(blob).num_components == 3
    except ValueError:
        return None
    if not is_plain or not blob.endswith(_JPEG_END):
        return None
    as_it_is = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return cv2.imdecode(np.frombuffer(blob, np.uint8), as_it_is)


def _decode_up_filtered(blob: bytes) -> np.ndarray | None:
    """The pixels of a PNG written by `encode_png`, None for any other file."""
    if (
        blob[:8] != _SIGNATURE
        or blob[37:_DATA_START] != b"IDAT"
        or blob[24:29] != b"\x08\x02\x00\x00\x00"
    ):
        return None
    width, height = struct.unpack(">II", blob[16:24])
    (length,) = struct.unpack(">I", blob[33:37])
    if blob[_DATA_START + length + 8 : _DATA_START + length + 12] != b"IEND":
        return None
    try:
        raw = zlib.decompress(memoryview(blob)[_DATA_START : _DATA_START + length])
    except zlib.error as error:
        raise ValueError(f"{len(blob)} bytes of a damaged PNG ({error})") from error
    if len(raw) != height * (1 + width * 3):
        return None
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * 3)
    if not (rows[:, 0] == _UP).all():
        return None
    return np.add.accumulate(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )
