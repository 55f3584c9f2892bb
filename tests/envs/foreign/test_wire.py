"""Messages are plain data; whatever else comes is an error and executes nothing."""

import ast
import json
import pickle
import socket
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from rrf.envs.foreign.child_path.rrf_child import wire
from rrf.envs.foreign.child_path.rrf_child.wire import (
    MAX_BODY,
    Connection,
    MessageError,
    decoded,
    encoded,
)
from tests.repository import structure


def test_the_bytes_are_those_of_the_description():
    message = encoded("step", [[2, 0], np.array([[1.0], [2.0]], np.float32)])
    header = b'{"name": "step", "value": [[2, 0], {"__array__": 0}], "arrays": [["<f4", [2, 1]]]}'
    body = bytes.fromhex("0000803f00000040")
    assert message == b"RRF1" + struct.pack("<IQ", len(header), 8) + header + body


def received(message: bytes):
    """What the other end makes of these bytes, after which nothing comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(message)
        ours.shutdown(socket.SHUT_WR)
        return Connection(theirs, timeout_s=5.0).recv()


@pytest.mark.parametrize(
    "array",
    [
        np.array(True),
        np.zeros((0, 3), np.float32),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array([np.nan, np.inf], np.float16),
    ],
)
def test_arrays_arrive_as_they_were_sent(array):
    name, value = received(encoded("done", {"a": [array, None, "é"], "b": 1.5}))
    assert (name, value["b"], value["a"][1:]) == ("done", 1.5, [None, "é"])
    found = value["a"][0]
    np.testing.assert_array_equal(found, array)
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("<")
    assert found.flags.writeable


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.array([object()]), np.array(["a"]), {"__array__": 0}, {1, 2}]
)
def test_what_is_not_plain_data_is_not_sent(value):
    with pytest.raises(TypeError):
        encoded("done", value)


def framed(header: bytes, body: bytes = b"") -> bytes:
    return b"RRF1" + struct.pack("<IQ", len(header), len(body)) + header + body


def described(arrays, value=None) -> bytes:
    return json.dumps({"name": "done", "value": value, "arrays": arrays}).encode()


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a message was executed",)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (pickle.dumps(("done", Bomb())), "it begins with"),
        (b"GET / HTTP/1.1\r\n\r\n", "it begins with b'GET ' instead of b'RRF1'"),
        (b"RRF1" + struct.pack("<IQ", 10, MAX_BODY + 1), "at most 1048576 and 268435456"),
        (b"RRF1" + struct.pack("<IQ", 2**32 - 1, 0), "announces a header of 4294967295"),
        (encoded("done", 1)[:9], "it ended after 9 of 16 bytes"),
        (encoded("done", np.zeros(9))[:-1], "it ended after 71 of 72 bytes"),
        (framed(b"{"), "the header is damaged: JSONDecodeError"),
        (framed(b"\xff"), "the header is damaged: UnicodeDecodeError"),
        (framed(b"[]"), "the header is damaged: TypeError"),
        (framed(b"[" * 100_000), "the header is damaged: RecursionError"),
        (framed(b'{"name": "done", "value": NaN, "arrays": []}'), "NaN outside an array"),
        (framed(b'{"name": 3, "value": 1, "arrays": []}'), "0 of the body's 0 bytes"),
        (framed(described([]), b"123"), "0 of the body's 3 bytes are arrays"),
        (framed(described([["|O", [1]]]), bytes(8)), r"dtype '\|O'; allowed: "),
        (framed(described([["<f4", [2**62, 4]]]), bytes(8)), "does not fit into 8 bytes"),
        (framed(described([["<f4", [-1]]]), bytes(8)), r"an array has shape \[-1\]"),
        (framed(described([["<f4", [0] * 99]])), "an array has shape"),
        (framed(described([], {"__array__": 0})), "stands for no array"),
        (framed(described([], {"__array__": "x"})), "stands for no array"),
    ],
)
def test_what_is_no_message_is_refused(message, says):
    with pytest.raises(MessageError, match=says):
        received(message)


def test_a_closed_connection_is_told_apart_from_a_broken_message():
    with pytest.raises(EOFError):
        received(b"")


def test_random_bytes_never_do_anything_else():
    random = np.random.default_rng(0)
    good = encoded("done", {"a": np.zeros(3, np.float32), "b": [1, 2]})
    header, body = good[16:-12], good[-12:]
    for _ in range(2000):
        bad = bytearray(header)
        for place in random.integers(len(bad), size=3):
            bad[place] = random.integers(256)
        try:
            name, _value = decoded(bytes(bad), body)
        except MessageError:
            continue
        assert isinstance(name, str)


def test_the_other_side_is_python_3_8_and_imports_numpy_only():
    files = sorted(Path(wire.__file__).parent.glob("*.py"))
    names = [
        "__init__.py",
        "batch.py",
        "episodes.py",
        "rasterizer.py",
        "scenes.py",
        "serve.py",
        "shifts.py",
        "wire.py",
    ]
    assert [file.name for file in files] == names
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 8))
        packages = {name.partition(".")[0] for name in structure.imports(file)}
        assert packages <= {*sys.stdlib_module_names, "numpy"}, file
