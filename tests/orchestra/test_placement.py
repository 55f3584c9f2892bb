"""RLinf's placement grammar."""

import re

import pytest

from rrf.config import first_error, parse_overrides
from rrf.orchestra.placement import numbers, parse
from rrf.runners.vla_rl.configs import RayCfg

ROLES = ("env", "rollout", "actor")


def names(count):
    return [f"node {number}" for number in range(count)]


def places(where, num_resources=8):
    return parse({"env": where, "rollout,actor": "0"}, names(num_resources), ROLES).roles["env"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("2", [(2,)]),
        ("0-2", [(0,), (1,), (2,)]),
        ("all", [(n,) for n in range(8)]),
        ("0:0-3", [(0,)] * 4),
        ("0-1:0-3", [(0,), (0,), (1,), (1,)]),
        ("0-3:0-1", [(0, 1), (2, 3)]),
        ("0-1:0-3,3-5,7:7", [(0,), (0,), (1,), (1,), (3,), (4,), (5,), (7,)]),
    ],
)
def test_resources_of_each_process(where, expected):
    assert places(where) == expected


@pytest.mark.parametrize(
    ("placement", "mode"),
    [
        ({"env,rollout,actor": "all"}, "collocated"),
        ({"env": "0-3", "rollout": "4-5", "actor": "6-7"}, "disaggregated"),
        ({"env": "0-3", "rollout": "4-7", "actor": "0-7"}, "hybrid"),
    ],
)
def test_the_mode_follows_from_the_overlap(placement, mode):
    assert parse(placement, names(8), ROLES).mode == mode


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("0-8", "needs resource 8, but the cluster has 8: 0: node 0, 1: node 1"),
        ("x", "'x' is not RESOURCES"),
        ("0-2:0-1", "2 processes over 3 resources"),
        ("0:0,1:0", "process 0 is placed twice"),
        ("0:1-2", "numbered from 0 without gaps"),
        ("3-1", "runs backwards; write 1-3"),
    ],
)
def test_what_is_no_placement_is_explained(where, message):
    with pytest.raises(ValueError, match=message):
        places(where)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"env": "0", "rollout": "0"}, "lacks actor; add actor: all"),
        ({"env,reward": "0"}, "names 'reward', allowed: env, rollout, actor"),
        ({"env": "0", "env,rollout": "0"}, "names 'env' twice"),
    ],
)
def test_every_role_has_one_place(placement, message):
    with pytest.raises(ValueError, match=message):
        parse(placement, names(1), ROLES)


GROUPS = {"": [2, 3, 4], "node": [0, 1], "sim": [1]}  # two nodes, three GPUs


@pytest.mark.parametrize(
    ("group", "where", "expected"),
    [
        ("node", "all", [(0,), (1,)]),
        ("node", "0-1:0-3", [(0,), (0,), (1,), (1,)]),
        ("sim", "0:0-1", [(1,), (1,)]),
        (None, "0-2:0", [(2, 3, 4)]),
    ],
)
def test_a_node_group_counts_its_own_resources(group, where, expected):
    own = where if group is None else {"node_group": group, "placement": where}
    roles = parse({"env": own, "rollout,actor": "0"}, names(5), ROLES, GROUPS).roles
    assert roles["env"] == expected
    assert roles["rollout"] == roles["actor"] == [(2,)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"node_group": "robots", "placement": "0"}, "no node group 'robots', .*: node, sim"),
        ({"node_group": "sim", "placement": "0-1"}, "resource 1, but the cluster has 1: 0: node 1"),
        ({"node_group": "sim"}, "has node_group, but .* has node_group and placement"),
    ],
)
def test_what_is_no_place_in_a_node_group_is_explained(where, message):
    with pytest.raises(ValueError, match=message):
        parse({"env": where, "rollout,actor": "0"}, names(5), ROLES, GROUPS)


def test_every_process_of_a_role_can_be_split_into_stages():
    placement = parse({"env": "0-1", "rollout,actor": "0"}, names(2), ROLES).split("env", 2)
    assert placement.roles == {"env": [(0,), (0,), (1,), (1,)], "rollout": [(0,)], "actor": [(0,)]}


def test_a_number_is_a_place_too():
    cfg = RayCfg().override(
        parse_overrides(["placement={env: 0:0-1, rollout: 1:2-3, actor: 0}", "node_groups={a: 1}"])
    )
    assert cfg.placement == {"env": "0:0-1", "rollout": "1:2-3", "actor": 0}
    placed = parse({"env": 0, "actor": {"node_group": "a", "placement": 0}}, "xy", ("env", "actor"),
                   {"": [0, 1], "a": [1]})  # fmt: skip
    assert placed.roles == {"env": [(0,)], "actor": [(1,)]}
    assert numbers("ray.node_groups.a", 1) == [1]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "placement={env: [0]}",
            r"^placement.env: \[0\] is no place; write resources, or RESOURCES",
        ),
        ("placement={env: {node_group: a, placement: [0]}}", "^placement.env: .* is no place"),
        ("placement={env: true}", "^placement.env: True is no place"),
        (
            "node_groups={a: [1]}",
            r"^node_groups.a: \[1\] is neither a number of a node nor a range",
        ),
    ],
)
def test_what_is_no_place_is_one_line(word, message):
    with pytest.raises(ValueError, match="validation error") as error:
        RayCfg().override(parse_overrides([word]))
    [line] = first_error(error.value).splitlines()
    assert re.match(message, line), line
