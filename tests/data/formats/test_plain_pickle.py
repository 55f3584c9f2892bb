"""Pickled plain data is read without unpickling, and nothing else is."""

import pickle
import subprocess

import numpy as np
import pytest

from rrf.data.formats.plain_pickle import read_plain


def written(path, data, protocol):
    """What `numpy.save` writes, by a protocol of pickle's."""
    array = np.empty((), object)
    array[()] = data
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        pickle.dump(array, file, protocol=protocol)
    return path


@pytest.mark.parametrize("protocol", range(5))
def test_plain_data_is_what_pickle_would_give(tmp_path, protocol):
    shared = [1, 2.5, "text", b"bytes", None, True, -3, 2**70, (1, (2, 3, 4))]
    data = {
        "shared": [shared, shared],
        "big-endian": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "words": np.array(["a", "bcd"]),
        "scalar": np.float32(1.5),
        "objects": np.array([{"a": 1}, "b"], object),
        7: (),
    }
    read = read_plain(written(tmp_path / "data.npy", data, protocol))
    assert read["shared"] == [shared, shared]
    for name in ("big-endian", "fortran", "words"):
        np.testing.assert_array_equal(read[name], data[name])
    assert read["scalar"] == 1.5
    assert read["objects"] == [{"a": 1}, "b"]
    assert read[7] == ()


class Calls:
    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Calls(print, "it ran"), "it names .*print"),
        ([Calls(eval, "1")], "it names .*eval"),
        (Calls(subprocess.run, ["true"]), r"it names \w+\.run"),
        (np.ndarray, "it holds a type"),
        ({(1, 2): 3}, "a dict has a key"),
        ({1, 2}, "it (has the instruction EMPTY_SET|names .*set)"),
        (np.array(["2020-01-01"], "datetime64[D]"), "it has an array of datetime64"),
    ],
    ids=["print", "eval", "run", "type", "key", "set", "dates"],
)
def test_what_is_not_plain_is_refused_and_nothing_is_called(
    tmp_path, data, message, protocol, capsys
):
    path = written(tmp_path / "data.npy", data, protocol)
    with pytest.raises(ValueError, match=f"holds no plain data that could be read: {message}"):
        read_plain(path)
    assert capsys.readouterr().out == ""


def test_damaged_files_and_data_that_holds_itself_are_refused(tmp_path):
    cyclic = [1]
    cyclic.append(cyclic)
    with pytest.raises(ValueError, match="holds itself"):
        read_plain(written(tmp_path / "cyclic.npy", cyclic, 4))
    whole = written(tmp_path / "whole.npy", {"a": np.arange(4)}, 4).read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut.npy").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="holds no plain data"):
            read_plain(tmp_path / "cut.npy")
    np.save(tmp_path / "numbers.npy", np.arange(3))
    with pytest.raises(ValueError, match="array of int64, not a pickle"):
        read_plain(tmp_path / "numbers.npy")
    with pytest.raises(ValueError, match="is missing"):
        read_plain(tmp_path / "absent.npy")


def test_data_that_would_unfold_to_terabytes_stays_small(tmp_path):
    laughs = ["ha"] * 10
    for _ in range(40):
        laughs = [laughs] * 10
    read = read_plain(written(tmp_path / "laughs.npy", laughs, 4))
    assert len(read) == 10
