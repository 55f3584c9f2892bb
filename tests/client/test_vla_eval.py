"""The frames of vla-eval's protocol: what is read, and what is refused before it is built."""

import io

import msgpack
import numpy as np
import pytest
from PIL import Image

from rrf.client.messages import MessageError
from rrf.client.vla_eval import ACTION, OBSERVATION, Frame, pack, unpack


def frame(payload, **changes):
    """A frame as vla-eval's `pack_message` writes it."""
    raw = {"type": "observation", "payload": payload, "seq": 3, "timestamp": 1.5} | changes
    return msgpack.packb(raw, use_bin_type=True)


def picture(pixels, format="png", **changes):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format=format)
    told = {"__image__": True, "format": format, "data": content.getvalue()}
    return told | {"shape": list(pixels.shape)} | changes


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)


def test_a_message_survives_packing():
    actions = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = unpack(pack(Frame(ACTION, {"actions": actions, "n": np.int64(3)}, 7)))
    assert (read.type, read.seq, read.payload["n"]) == (ACTION, 7, 3)
    np.testing.assert_array_equal(read.payload["actions"], actions)


def test_pictures_are_read_in_all_three_forms():
    raw = {"__image__": True, "format": "raw", "data": PIXELS.tobytes(), "dtype": "|u1",
           "shape": [4, 6, 3]}  # fmt: skip
    images = {"a": picture(PIXELS), "b": raw, "c": picture(PIXELS, "jpeg")}
    read = unpack(frame({"images": images})).payload["images"]
    np.testing.assert_array_equal(read["a"], PIXELS)
    np.testing.assert_array_equal(read["b"], PIXELS)
    assert (read["c"].shape, read["c"].dtype) == (PIXELS.shape, np.uint8)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xc1", "not a message of vla-eval"),
        ("hello", "a text"),
        (frame({}, type="open"), "no known type"),
        (frame([]), "no payload"),
        (frame({}, seq="1"), "no seq"),
        (frame({"x": {"__ndarray__": True, "data": b"\0" * 8, "dtype": "|O8", "shape": [1]}}),
         "array of dtype"),
        (frame({"x": {"__ndarray__": True, "data": b"\0" * 8, "dtype": "<f4", "shape": [3]}}),
         r"whose data are not float32\[3\]"),
        (frame({"x": {"__ndarray__": True, "data": b"", "dtype": "<f4", "shape": [-1]}}),
         "array of shape"),
        (frame({"x": picture(PIXELS, shape=[5000, 5000, 3])}), "more than 16777216 pixels"),
        (frame({"x": picture(PIXELS, shape=[4, 7, 3])}), "told to be"),
        (frame({"x": picture(PIXELS, data=b"no picture")}), "cannot identify"),
        (frame({"x": picture(PIXELS, "gif")}), "format 'gif'; allowed: raw, png, jpeg"),
        (frame({"x": picture(PIXELS, format="jpeg") | {"format": "png"}}), "cannot identify"),
        (frame({str(n): [0] * 4000 for n in range(5)}), "more than 16384 parts"),
        (frame({"x": [0] * 5000}), "exceeds max_array_len"),
        (msgpack.packb({"type": msgpack.ExtType(5, b"x"), "payload": {}, "seq": 1}), "max_ext_len"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(data, why):
    with pytest.raises(MessageError, match=why):
        unpack(data)


def test_a_small_picture_that_says_it_is_huge_is_not_decoded(monkeypatch):
    decoded, data = [], frame({"x": picture(PIXELS, shape=[100_000, 100_000, 3])})
    monkeypatch.setattr(Image.Image, "load", lambda self: decoded.append(self))
    with pytest.raises(MessageError, match="more than"):
        unpack(data)
    assert decoded == []


def test_objects_are_not_packed():
    with pytest.raises(TypeError, match="cannot carry a object"):
        pack(Frame(OBSERVATION, {"x": object()}, 1))
