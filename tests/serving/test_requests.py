"""From a client's message to the checked inputs of a row."""

import numpy as np
import pytest

from rrf.runners.checkpoints.deployed import Signature, Tensor
from rrf.serving.requests import RequestReader

FRONT = Tensor("uint8", (-1, 4, 6, 3), "observation.images.front")
HAND = Tensor("uint8", (-1, 4, 6, 3), "observation.images.hand")
STATE = Tensor("float32", (-1, 2), "observation.state")
TEXT = Tensor("str", (-1,), "instruction")
SIGNATURE = Signature((FRONT, HAND, STATE, TEXT), Tensor("float32", (-1, 5, 3)))
IMAGE = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)


def request(**changes):
    own = {
        "observation.images.front": IMAGE,
        "observation.images.hand": IMAGE[::-1],
        "observation.state": np.array([1, 2], np.float32),
        "instruction": "go",
    }
    return {key: value for key, value in {**own, **changes}.items() if value is not None}


def read(message, **settings):
    return RequestReader(SIGNATURE, **settings).row(message)


def same(row, other):
    assert set(row.inputs) == set(other.inputs)
    for name, value in row.inputs.items():
        assert value.dtype == other.inputs[name].dtype, name
        assert np.array_equal(value, other.inputs[name]), name


def test_openpis_keys_mean_ours():
    same(
        read(
            {
                "observation/image": IMAGE,
                "observation/hand": IMAGE[::-1],
                "observation/state": [1.0, 2.0],
                "prompt": "go",
                "something else": 3,
            }
        ),
        read(request()),
    )


def test_alohas_nested_images_with_channels_first_mean_ours():
    images = {"front": IMAGE.transpose(2, 0, 1), "hand": IMAGE[::-1].transpose(2, 0, 1)}
    same(read({"images": images, "state": np.array([1, 2]), "prompt": "go"}), read(request()))


def test_a_name_of_ours_wins_over_one_of_openpis():
    row = read(request(prompt="stop", state=[9.0, 9.0]))
    assert row.inputs["instruction"] == "go"
    assert row.inputs["observation.state"].tolist() == [1, 2]


def test_further_names_can_be_given():
    wrist = {"observation/wrist_image": "observation.images.hand"}
    message = request(**{"observation.images.hand": None, "observation/wrist_image": IMAGE[::-1]})
    same(read(message, rename=wrist), read(request()))
    with pytest.raises(ValueError, match=r"no input 'observation\.images\.hnd'.*did you mean"):
        RequestReader(SIGNATURE, {"a": "observation.images.hnd"})


def test_an_instruction_may_be_agreed_on_beforehand():
    assert read(request(instruction=None), instruction="go on").inputs["instruction"] == "go on"
    assert read(request(), instruction="go on").inputs["instruction"] == "go"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ([1], "a request is a map"),
        ({}, r"'observation\.images\.front' is missing \(uint8\[4, 6, 3\]\)"),
        (request(instruction=None), "'instruction' is missing"),
        (request(instruction=" "), "text of 1 to 4096"),
        (request(instruction="x" * 5000), "text of 1 to 4096"),
        (request(instruction=np.zeros(2)), "text of 1 to 4096"),
        (request(**{"observation.images.hand": IMAGE[:2]}), r"hand' is uint8\[2, 6, 3\], expected"),
        (
            request(**{"observation.images.hand": IMAGE / 255}),
            r"float64\[4, 6, 3\], expected uint8",
        ),
        (request(**{"observation.state": np.zeros(3)}), r"float64\[3\], expected float32\[2\]"),
        (request(**{"observation.state": [1.0, "a"]}), r"state' is .*expected float32\[2\]"),
        (request(**{"observation.state": [[1.0], [1.0, 2.0]]}), "inhomogeneous|expected"),
        (request(**{"observation.state": {"x": 1}}), "a dict, expected"),
        (request(**{"observation.state": [0.0, np.nan]}), r"state' at \[1\] is nan"),
        (request(**{"observation.state": [0.0, 1e300]}), r"state' at \[1\] is inf"),
    ],
    ids=range(14),
)
def test_what_does_not_fit_is_refused(message, why):
    with pytest.raises(ValueError, match=why):
        read(message)


def test_a_running_chunk_decides_whose_company_a_row_keeps():
    rest = np.zeros((4, 3))
    row = read(request(running_chunk=rest, num_frozen=2))
    assert row.running.dtype == np.float32
    assert row.batch_key == (4, 2)
    assert read(request()).batch_key is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"running_chunk": np.zeros((6, 3))}, r"float64\[6, 3\].*K from 1 to 5"),
        ({"running_chunk": np.zeros((0, 3))}, "K from 1 to 5"),
        ({"running_chunk": np.zeros((2, 4))}, r"float32\[K, 3\]"),
        ({"running_chunk": np.zeros(3)}, r"float32\[K, 3\]"),
        ({"running_chunk": [[1, 2, 3]]}, "a list"),
        ({"running_chunk": np.full((2, 3), np.inf)}, "not a finite"),
        ({"running_chunk": np.zeros((2, 3)), "num_frozen": 3}, "num_frozen' is 3, allowed: 0 to 2"),
        ({"running_chunk": np.zeros((2, 3)), "num_frozen": "1"}, "num_frozen' is '1'"),
        ({"running_chunk": np.zeros((2, 3)), "num_frozen": True}, "num_frozen' is True"),
    ],
    ids=range(9),
)
def test_a_running_chunk_that_does_not_fit_is_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        read(request(**changes))


def test_a_policy_without_chunks_continues_none():
    single = RequestReader(Signature((STATE,), Tensor("float32", (-1, 3))))
    with pytest.raises(ValueError, match="only for policies that answer with chunks"):
        single.row({"observation.state": [1, 2], "running_chunk": np.zeros((1, 3))})
