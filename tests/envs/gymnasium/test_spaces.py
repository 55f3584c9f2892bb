"""Spaces of Gymnasium: actions for them, their observations as one vector, what is refused."""

import re

import gymnasium
import numpy as np
import pytest
import torch

from rrf.envs.gymnasium.spaces import (
    ActionMap,
    flattening,
    num_choices,
    observation_width,
    visible_dimensions,
)

SPACES = gymnasium.spaces
BOX = SPACES.Box


def test_real_actions_are_stretched_over_the_bounds():
    space = BOX(np.float32([-2, 0, -np.inf, 1]), np.float32([2, 10, np.inf, np.inf]))
    to_space = ActionMap(space, 2, "a task")
    mapped = to_space(torch.tensor([[-1.0, -1.0, 7.0, 0.0], [0.5, 3.0, -7.0, 5.0]]))
    assert mapped.tolist() == [[-2.0, 0.0, 7.0, 1.0], [1.0, 10.0, -7.0, 5.0]]
    assert mapped.dtype == np.float32


def test_a_choice_is_an_index_from_zero():
    to_space = ActionMap(SPACES.Discrete(3, start=4), 2, "a task")
    assert to_space.num_choices == 3
    assert to_space(torch.tensor([[0.0], [2.0]])).tolist() == [4, 6]
    for wrong in (3.0, -1.0, 0.5):
        with pytest.raises(ValueError, match=r"environment 1 is .*has the actions 0 to 2"):
            to_space(torch.tensor([[0.0], [wrong]]))


@pytest.mark.parametrize(
    "space",
    [
        SPACES.MultiDiscrete([2, 2]),
        SPACES.Dict({"a": BOX(-1, 1, (2,))}),
        BOX(0, 255, (3,), np.uint8),
        BOX(-1, 1, (2, 2)),
        BOX(-1, 1, (0,)),
    ],
)
def test_other_action_spaces_are_refused_by_name(space):
    with pytest.raises(ValueError, match=re.escape(f"a task has the action space {space}")):
        ActionMap(space, 1, "a task")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_number_is_no_bound_and_half_precision_overflows_nowhere(dtype):
    most = np.finfo(dtype).max
    actions = torch.tensor([[0.0, 0.5]])
    wide = ActionMap(BOX(-most, most, (2,), dtype), 1, "wide")
    assert wide(actions).tolist() == [[0.0, 0.5]]
    half = ActionMap(BOX(-1e4, 6e4, (2,), np.float16), 1, "half")
    assert half(actions)[0] == pytest.approx([2.5e4, 4.25e4], rel=1e-3)


@pytest.mark.parametrize(
    ("space", "what"),
    [
        (BOX(0, 255, (8, 8, 3), np.uint8), "images"),
        (BOX(0, 255, (8, 8), np.uint8), "images"),
        (BOX(0, 1, (3, 8, 8)), "images"),
        (SPACES.Dict({"at": BOX(0, 1, (2,)), "eye": BOX(0, 255, (8, 8, 3), np.uint8)}), "images"),
        (SPACES.Tuple([SPACES.Text(4)]), "Text"),
        (SPACES.Sequence(BOX(0, 1, (2,))), "Sequence"),
    ],
)
def test_images_and_words_are_refused_by_name(space, what):
    match = re.escape(f"observation space {space}, but a policy of states cannot observe {what}.")
    with pytest.raises(ValueError, match=match):
        visible_dimensions(space, [], "a task")


@pytest.mark.parametrize("space", [SPACES.Dict({}), BOX(0, 1, (0,))])
def test_an_observation_without_numbers_is_refused(space):
    with pytest.raises(ValueError, match=r"a task has the observation space .*holds no number"):
        visible_dimensions(space, [], "a task")


def test_a_space_with_many_bounds_is_shown_in_one_line():
    bounds = np.arange(60, dtype=np.float32)
    space = SPACES.Dict({"at": BOX(-bounds, bounds + 1), "eye": BOX(0, 1, (8, 8, 3))})
    for check in (num_choices, observation_width):
        with pytest.raises(ValueError, match=r"space Dict\('at': Box\(\[.* \.\.\.[;,] ") as caught:
            check(space, "a task")
        assert "\n" not in str(caught.value)


def test_nested_observations_are_joined_in_the_order_of_their_spaces():
    space = SPACES.Dict(
        {
            "b": SPACES.Dict({"y": BOX(-9, 9, (2,)), "x": SPACES.Discrete(2)}),
            "a": SPACES.Tuple((BOX(0, 255, (2,), np.uint8), SPACES.MultiDiscrete([2, 3]))),
        }
    )
    flatten = flattening(space)
    assert flatten is not None
    observation = {
        "a": (np.uint8([200, 7]), np.int64([1, 2])),
        "b": {"x": 1, "y": np.float32([5, 6])},
    }
    # a: two bytes, then one of 2 and one of 3; b: x before y, because a Dict sorts its keys.
    assert flatten(observation).tolist() == [200, 7, 0, 1, 0, 0, 1, 0, 1, 5, 6]
    assert observation_width(space, "a task") == 11


def test_structured_observations_become_one_vector():
    space = SPACES.Dict(
        {"at": SPACES.Discrete(3, start=5), "map": BOX(0, 9, (2, 2)), "on": SPACES.MultiBinary(2)}
    )
    flatten = flattening(space)
    assert flatten is not None
    found = flatten({"at": 6, "map": np.float32([[1, 2], [3, 4]]), "on": np.int8([1, 0])})
    assert found.tolist() == [0, 1, 0, 1, 2, 3, 4, 1, 0]
    assert visible_dimensions(space, [0, 8], "a task").tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert flattening(BOX(0, 1, (4,))) is None
