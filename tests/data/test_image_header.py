import io

import numpy as np
import pytest
from PIL import Image

from rrf.data.image_header import read_image_header


def encode(file_format, height=5, width=9, mode="RGB", **options):
    file = io.BytesIO()
    image = Image.fromarray(np.zeros((height, width, 3), np.uint8)).convert(mode)
    image.save(file, file_format, **options)
    return file.getvalue()


def test_format_height_and_width_of_png_and_jpeg():
    assert read_image_header(encode("png")) == ("png", 5, 9, 3)
    assert read_image_header(encode("jpeg")) == ("jpg", 5, 9, 3)
    assert read_image_header(encode("jpeg", 480, 640, progressive=True)) == ("jpg", 480, 640, 3)


@pytest.mark.parametrize(
    ("file_format", "mode", "num_components"),
    [
        *(("png", "L", 1), ("png", "P", 1), ("png", "LA", 2), ("png", "RGBA", 4)),
        *(("jpeg", "L", 1), ("jpeg", "CMYK", 4)),
    ],
)
def test_how_many_components_a_pixel_has(file_format, mode, num_components):
    assert read_image_header(encode(file_format, mode=mode)).num_components == num_components


def test_a_jpeg_with_long_segments_and_padding_before_its_size():
    jpeg = encode("jpeg", exif=b"Exif\x00\x00" + bytes(3000))
    assert read_image_header(jpeg[:2] + b"\xff\xff" + jpeg[2:]) == ("jpg", 5, 9, 3)


@pytest.mark.parametrize("blob", [b"", b"GIF89a" + bytes(40), b"\x89PNG\r\n\x1a\n"])
def test_other_bytes_are_refused(blob):
    with pytest.raises(ValueError, match=f"{len(blob)} bytes that are neither JPEG nor PNG"):
        read_image_header(blob)


@pytest.mark.parametrize("size", [3, 20, 160])
def test_a_jpeg_cut_off_before_its_size_is_refused(size):
    with pytest.raises(ValueError, match=f"{size} bytes of a JPEG that ends before its size"):
        read_image_header(encode("jpeg")[:size])
