"""Format, size and components of a compressed image, read from its first bytes without decoding it.

PNG: https://www.w3.org/TR/png-3/#11IHDR. JPEG: ITU-T T.81, annex B; these stand in the frame
header, which comes after any number of other segments.
"""

import struct
import typing

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_PNG_COMPONENTS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type; a palette's index is one
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15


class ImageHeader(typing.NamedTuple):
    """What the first bytes of an image say."""

    suffix: typing.Literal["jpg", "png"]
    height: int
    width: int
    num_components: int

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width


def read_image_header(blob: bytes) -> ImageHeader:
    """Format, size and components of a JPEG or PNG file.

    Raises:
        ValueError: If the bytes are neither, or end before the size.
    """
    if blob.startswith(_PNG) and len(blob) >= 26 and blob[25] in _PNG_COMPONENTS:
        width, height = struct.unpack_from(">II", blob, 16)
        return ImageHeader("png", height, width, _PNG_COMPONENTS[blob[25]])
    if blob.startswith(_JPEG):
        return ImageHeader("jpg", *_jpeg_size(blob))
    raise ValueError(f"{len(blob)} bytes that are neither JPEG nor PNG")


def _jpeg_size(blob: bytes) -> tuple[int, int, int]:
    """Height, width, number of components."""
    at = 2
    while at + 10 <= len(blob) and blob[at] == 0xFF:
        marker = blob[at + 1]
        if marker in _FRAME_HEADERS:
            return struct.unpack_from(">HHB", blob, at + 5)
        if marker == 0xFF:  # padding
            at += 1
        else:
            at += 2 + int.from_bytes(blob[at + 2 : at + 4], "big")
    raise ValueError(f"{len(blob)} bytes of a JPEG that ends before its size")
