"""The bytes of openpi's client, and bytes that are none."""

import msgpack
import numpy as np
import pytest

from rrf.client.messages import MessageError, pack, unpack

# Assembled by hand from msgpack's specification and openpi's keys: {"a": float32 [1, 2]}.
ARRAY = (
    bytes.fromhex("81 a1 61 84")
    + b"\xc4\x0b__ndarray__\xc3"
    + b"\xc4\x04data\xc4\x08\x00\x00\x80\x3f\x00\x00\x00\x40"
    + b"\xc4\x05dtype\xa3<f4"
    + b"\xc4\x05shape\x91\x02"
)
SCALAR = b"\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\x07\xc4\x05dtype\xa3<i4"


def test_an_array_is_written_as_openpi_writes_it():
    assert pack({"a": np.array([1, 2], np.float32)}) == ARRAY
    assert pack(np.int32(7)) == SCALAR


def test_openpis_bytes_are_read():
    found = unpack(ARRAY)["a"]
    assert found.dtype == np.float32
    assert found.tolist() == [1.0, 2.0]
    assert unpack(SCALAR) == np.int32(7)


def test_everything_of_an_observation_survives():
    rng = np.random.default_rng(0)
    observation = {
        "image": rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)[::-1],  # not contiguous
        "state": rng.standard_normal(3),
        "flag": np.array([True, False]),
        "empty": np.zeros((0, 7), np.float32),
        "prompt": "öffne die Tür",
        "nested": {"list": [1, 2.5, None]},
    }
    again = unpack(pack(observation))
    for name in ("image", "state", "flag", "empty"):
        assert again[name].dtype == observation[name].dtype
        assert np.array_equal(again[name], observation[name])
    assert {k: again[k] for k in ("prompt", "nested")} == {
        "prompt": "öffne die Tür",
        "nested": {"list": [1, 2.5, None]},
    }


def described(**changes):
    content = {"__ndarray__": True, "data": b"\0" * 8, "dtype": "<f4", "shape": [2], **changes}
    return msgpack.packb({key.encode(): value for key, value in content.items()})


DEEP = b"\x91" * 5000 + b"\xc0"
MANY = b"\xdc\x0f\xff" + (b"\xdc\x01\x00" + b"\x00" * 256) * 4095


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Unpack failed|incomplete"),
        (b"\xc1", "not a msgpack"),
        (ARRAY[:-1], "incomplete"),
        (ARRAY + b"\0", "extra"),
        (described(shape=[3]), "whose data are not"),
        (described(shape=[-2]), "shape"),
        (described(shape=[2**40, 2**40]), "whose data are not"),
        (described(shape=[1] * 40), "shape"),
        (described(dtype="|O"), "dtype object"),
        (described(dtype="f4,f4"), "without a dtype"),
        (described(dtype="zz"), "not understood|dtype"),
        (described(dtype=3), "without a dtype"),
        (described(data="text"), "whose data are not"),
        (msgpack.packb({b"__ndarray__": True}), "dtype"),
        (msgpack.packb({b"__npgeneric__": True, b"data": "x", b"dtype": "<f4"}), "convert"),
        (msgpack.packb(msgpack.ExtType(1, b"code")), "ext"),
        (DEEP, "not a msgpack"),
        (MANY, "more than 16384 parts"),
        (b"\xdd\xff\xff\xff\xff", "exceeds"),
    ],
    ids=range(19),
)
def test_what_is_not_a_message_is_refused(data, why):
    with pytest.raises(MessageError, match=why):
        unpack(data)


def test_what_no_message_can_carry_is_refused():
    for value in (np.array(["a"]), np.array([None]), np.array([1j]), object(), 2**70):
        with pytest.raises(ValueError, match="cannot carry"):
            pack({"value": value})
