"""A policy on a robot: what it is given, what it answers, and robots that it does not fit."""

import json

import numpy as np
import pytest
import torch

from rrf.data.dataset.stats import norm_stats
from rrf.evaluation.vla.robot import RobotPolicy, check_recordings
from rrf.lineage import DatasetLineage, Lineage
from rrf.presets import resolve
from rrf.runners.checkpoints.checkpoint import TrainerState, find, load_policy, save
from rrf.runners.checkpoints.deployed_vla import _observation
from tests.runners.supervised.conftest import (
    INSTRUCTIONS,
    SCHEMA,
    tiny_policy_cfg,
    write_synthetic,
)

STATES, ACTIONS = ("x", "y"), ("dx", "dy")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    write_synthetic(tmp_path / "datasets/demo", 4)
    return tmp_path


@pytest.fixture
def checkpoint(home):
    torch.manual_seed(0)
    stats = norm_stats(home / "datasets/demo")
    policy = tiny_policy_cfg(chunk_length=3)
    cfg = resolve("compact-vla-pretrain", {"dataset": "demo"}).replace(policy=policy)
    weights, trainer = (
        policy.build(stats).state_dict(),
        TrainerState({"x": torch.zeros(1)}, {"step": 1}),
    )
    save(home / "run", 1, cfg, weights, stats, trainer, Lineage((DatasetLineage("demo"),)))
    return find(home / "run")


def seen(number: int, size: int = 16) -> dict:
    random = np.random.default_rng(number)
    image = np.repeat(
        np.repeat(random.integers(0, 255, (16, 16, 3), np.uint8), size // 16, 0), size // 16, 1
    )
    return {"x": 0.1 * number, "y": -0.2, "front": image, "wrist": image}


def of(checkpoint, **changes) -> RobotPolicy:
    usual = {"states": STATES, "actions": ACTIONS, "cameras": ("front", "wrist")}
    return RobotPolicy(checkpoint, instruction=INSTRUCTIONS[0], **(usual | changes))


def expected(checkpoint, number: int) -> np.ndarray:
    """The chunk for an observation, asked of the policy itself, [3, 2]."""
    now = seen(number)
    inputs = {
        "observation.images.front": now["front"][None],
        "observation.state": np.array([[now["x"], now["y"]]], np.float32),
        "instruction": np.array([INSTRUCTIONS[0]]),
    }
    return load_policy(checkpoint).sample(_observation(inputs), greedy=True).actions[0]  # type: ignore[operator]


def test_a_chunk_is_executed_step_by_step_and_then_the_next_is_asked_for(checkpoint):
    policy = of(checkpoint)
    policy.warm_up()
    acted = [policy.act(seen(number)) for number in range(5)]
    chunks = np.concatenate([expected(checkpoint, 0), expected(checkpoint, 3)])
    for action, wanted in zip(acted, chunks[:5], strict=True):
        assert list(action) == ["dx", "dy"]
        np.testing.assert_allclose(list(action.values()), wanted, rtol=1e-5)
    policy.begin(1)  # an episode later
    np.testing.assert_allclose(
        [*policy.act(seen(7)).values()], expected(checkpoint, 7)[0], rtol=1e-5
    )


def test_execute_one_asks_in_every_step(checkpoint):
    policy = of(checkpoint, execute=1)
    for number in range(3):
        np.testing.assert_allclose(
            [*policy.act(seen(number)).values()], expected(checkpoint, number)[0], rtol=1e-5
        )


def test_pictures_of_the_robot_are_made_as_small_as_the_policys(checkpoint):
    small, large = of(checkpoint), of(checkpoint)
    assert small.act(seen(2)) == large.act(seen(2, size=64))  # each pixel four times


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"states": ("x",)}, "states of 2 numbers, but the robot's are 1: x"),
        ({"actions": ("a", "b", "c")}, "actions of 2 numbers, but the robot's are 3: a, b, c"),
        ({"cameras": ("frnt",)}, "sees through 'front', .*did you mean 'frnt'"),
        ({"execute": 4}, "--execute is 4, allowed: 1 to 3"),
        ({"schedule": "ensemble", "execute": 1}, "leave --execute out"),
        ({"schedule": "real-time"}, "cannot continue a running chunk"),
    ],
)
def test_a_misfit_is_said_in_a_sentence(checkpoint, changes, reason):
    with pytest.raises(ValueError, match=reason):
        of(checkpoint, **changes)


def test_a_robot_must_be_that_of_the_recordings(home, checkpoint):
    check_recordings(checkpoint, SCHEMA)
    path = home / "datasets/demo/meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["action"]["names"].reverse()
    path.write_text(json.dumps(info))
    with pytest.raises(
        ValueError, match=r"whose actions: dy \(1\), dx \(1\); the robot's actions: dx"
    ):
        check_recordings(checkpoint, SCHEMA)
    path.write_text(json.dumps(info | {"fps": 8}))
    with pytest.raises(ValueError, match="rate: 8 steps/s; the robot's rate: 16 steps/s"):
        check_recordings(checkpoint, SCHEMA)
    (home / "datasets/demo").rename(home / "datasets/elsewhere")
    check_recordings(checkpoint, SCHEMA)  # not here, so that nothing can be compared
