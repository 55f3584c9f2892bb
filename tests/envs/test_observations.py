"""Rows of observations, joined and sent: nothing of them is lost on the way."""

import dataclasses
import pickle

import numpy as np
import pytest

from rrf.data.schema import Observation
from rrf.envs.observations import digest, from_plain, join, padded, rows_of, to_plain


def observation(count=3):
    rng = np.random.default_rng(0)
    return Observation(
        images={"top": rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)},
        state=rng.normal(size=(count, 2)).astype(np.float32),
        instruction=[f"do {row}" for row in range(count)],
        maps={"depth": rng.normal(size=(count, 4, 4)).astype(np.float32)},
        advantage=np.array([1, -1, 0], np.int8),
        robots=["arm", "arm", "leg"],
        seen_steps_ago=np.array([0, 5, 10]),
    )


def assert_same(one, other):
    for field in dataclasses.fields(Observation):
        values, others = getattr(one, field.name), getattr(other, field.name)
        if isinstance(values, dict):
            assert values.keys() == others.keys()
            assert all(np.array_equal(values[name], others[name]) for name in values)
        else:
            assert np.array_equal(values, others), field.name


def test_rows_and_messages_carry_every_field():
    seen = observation()
    assert all(getattr(seen, field.name) is not None for field in dataclasses.fields(seen))
    assert_same(join([rows_of(seen, [row]) for row in range(3)]), seen)
    assert rows_of(seen, [2, 0]).robots == ["leg", "arm"]
    assert padded(rows_of(seen, [1]), 3).seen_steps_ago.tolist() == [5, 5, 5]  # type: ignore[union-attr]
    assert_same(from_plain(pickle.loads(pickle.dumps(to_plain(seen)))), seen)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Observation)])
def test_a_digest_depends_on_every_field(field):
    seen = observation()
    other = rows_of(seen, [0, 1, 2])
    value = getattr(other, field)
    if isinstance(value, dict):
        next(iter(value.values()))[1] += 1
    elif isinstance(value, list):
        value[1] = "other"
    else:
        value[1] += 1
    assert digest(other, 0) == digest(seen, 0)
    assert digest(other, 1) != digest(seen, 1)


def test_rows_of_different_fields_are_not_joined():
    seen = observation()
    for name in ("advantage", "robots", "seen_steps_ago"):
        with pytest.raises(AssertionError):
            join([seen, dataclasses.replace(seen, **{name: None})])
