"""CALVIN's tasks, rules and chains are those of its own code (commit fa03f01)."""

import collections

import numpy as np

from rrf.envs.calvin import tasks


def test_the_hash_is_pyhashs():
    assert tasks.fnv1_32("hello world") == 3799943344  # of pyhash.fnv1_32()
    assert tasks.fnv1_32("") == 0


def test_the_chains_are_those_that_calvin_draws():
    condition, sequence = tasks.chain(0)
    assert tasks.can_follow(condition, tuple(sequence))
    drawn = collections.defaultdict(list)
    for index in range(tasks.NUM_CHAINS):
        condition, sequence = tasks.chain(index)
        drawn[tasks.conditions().index(condition)].append(sequence)
    assert sorted(map(len, drawn.values())) == [5] * 152 + [6] * 40
    for number in (0, 97):
        names = list(tasks.INSTRUCTIONS)
        anew = [[names[n] for n in numbers] for numbers in tasks.sequences_of(number, 1)]
        assert anew[0] in drawn[number]


def test_a_scene_is_the_one_that_calvin_makes_of_its_condition():
    condition, _ = tasks.chain(0)
    robot_obs, scene = tasks.chain_scene(condition)
    np.testing.assert_allclose(robot_obs[:3], [0.02586889, -0.2313129, 0.5712808])
    assert scene[4:6].tolist() == [condition["lightbulb"], condition["led"]]


def test_a_task_follows_only_where_it_can_be_done():
    condition = tasks.conditions()[0]
    assert condition["drawer"] == "closed"
    assert tasks.outcomes(condition, "close_drawer") == []
    [after] = tasks.outcomes(condition, "open_drawer")
    assert after == condition | {"drawer": "open"}
    assert not tasks.can_follow(condition, ("place_in_drawer",))
    assert tasks.can_follow(condition, ("open_drawer", "lift_red_block_table", "place_in_drawer"))
    assert not tasks.can_follow(condition, ("turn_on_led", "turn_on_lightbulb"))  # of one kind


def test_drawn_blocks_lie_apart_and_on_the_table():
    random = np.random.default_rng(0)
    for number in range(0, 192, 16):
        _, scene = tasks.drawn_scene(tasks.conditions()[number], random)
        places = scene[6:].reshape(3, 6)[:, :2]
        gaps = np.linalg.norm(places[:, None] - places, axis=-1)[np.triu_indices(3, 1)]
        assert gaps.min() > 0.09
