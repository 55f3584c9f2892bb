import io

import numpy as np
import pytest
from PIL import Image

from rrf.data.images import decode_image, decode_rgb, encode_png, resize
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


def jpeg(mode="RGB", **options):
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(draw(0, 3)[0])).convert(mode).save(buffer, "JPEG", **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "YCbCr"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_jpeg_has_the_pixels_that_pillow_sees(mode, subsampling):
    blob = jpeg(mode, quality=80, subsampling=subsampling)
    expected = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
    pixels, is_rgb = decode_rgb(blob)
    np.testing.assert_array_equal(pixels, expected)
    assert is_rgb is (mode in ("RGB", "YCbCr"))


def test_an_orientation_that_a_camera_noted_turns_nothing():
    exif = Image.Exif()
    exif[0x0112] = 6  # lying on its side
    turned = jpeg(quality=80, exif=exif.tobytes())
    np.testing.assert_array_equal(decode_image(turned), decode_image(jpeg(quality=80)))


def test_a_jpeg_that_ends_early_is_refused():
    blob = jpeg(quality=80)
    for length in (1, 30, len(blob) // 2, len(blob) - 20):
        with pytest.raises(ValueError, match=f"^{length} bytes"):
            decode_image(blob[:length])


def test_what_stands_behind_a_jpeg_changes_nothing():
    blob = jpeg(quality=80)
    np.testing.assert_array_equal(decode_image(blob + bytes(100)), decode_image(blob))


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


@pytest.mark.parametrize(("mode", "expected"), [("RGB", True), ("L", False), ("RGBA", False)])
def test_whether_a_file_is_plain_rgb_is_known(mode, expected):
    buffer = io.BytesIO()
    Image.fromarray(NOISE[0]).convert(mode).save(buffer, "PNG")
    assert decode_rgb(buffer.getvalue())[1] is expected
    assert decode_rgb(encode_png(NOISE)[0])[1] is True


def test_resizing_takes_the_mean_of_the_area_a_pixel_covers():
    image = np.zeros((2, 6, 3), np.uint8)
    image[..., 0] = [[0, 2, 10, 20, 30, 40], [4, 6, 10, 20, 30, 40]]
    image[..., 2] = 255
    assert resize(image, (1, 3))[0].tolist() == [[3, 0, 255], [15, 0, 255], [35, 0, 255]]
    # not a whole factor: the first of four columns covers 1.5 of the six, (10 + 20 / 2) / 1.5
    row = np.repeat(np.array([[10, 20, 20, 20, 20, 20]], np.uint8)[..., None], 3, axis=2)
    assert resize(row, (1, 4))[0, 0, 0] == 13
    assert resize(image, (2, 6)).tolist() == image.tolist()
