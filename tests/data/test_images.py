import io

import numpy as np
import pytest
from PIL import Image

from rrf.data.images import decode_image, encode_png
from tests.data.conftest import draw

NOISE = np.random.default_rng(0).integers(0, 256, (2, 7, 5, 3), dtype=np.uint8)


@pytest.mark.parametrize("images", [NOISE, draw(0, 3), np.zeros((1, 1, 1, 3), np.uint8)])
def test_png_is_lossless_for_us_and_for_pillow(images):
    for image, blob in zip(images, encode_png(images), strict=True):
        np.testing.assert_array_equal(decode_image(blob), image)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(blob))), image)


@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_png_of_other_writers_is_read(mode):
    expected = Image.fromarray(NOISE[0]).convert(mode)
    buffer = io.BytesIO()
    expected.save(buffer, "PNG")
    np.testing.assert_array_equal(
        decode_image(buffer.getvalue()), np.asarray(expected.convert("RGB"))
    )


def test_jpeg_is_read():
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 100, 50)).save(buffer, "JPEG", quality=95)
    assert np.abs(decode_image(buffer.getvalue()).astype(int) - [200, 100, 50]).max() <= 4


def test_no_truncation_gives_wrong_pixels():
    blob = encode_png(NOISE[:1])[0]
    num_bytes_behind_the_pixels = 20  # two checksums and the end mark: Pillow does without them
    for length in range(len(blob)):
        if length < len(blob) - num_bytes_behind_the_pixels:
            with pytest.raises(ValueError, match=f"^{length} bytes"):
                decode_image(blob[:length])
        else:
            np.testing.assert_array_equal(decode_image(blob[:length]), NOISE[0])


def test_a_damaged_png_is_noticed():
    blob = bytearray(encode_png(NOISE[:1])[0])
    blob[60:70] = b"\x00" * 10
    with pytest.raises(ValueError, match="bytes of a damaged"):
        decode_image(bytes(blob))


def test_an_error_about_garbage_is_the_same_every_time():
    messages = []
    for _ in range(2):
        with pytest.raises(ValueError, match="no known image format") as caught:
            decode_image(b"junk")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
