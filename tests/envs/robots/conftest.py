"""The simulated SO-101 in a workspace of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rrf.envs.robots.configs import RobotCfg, load_robot_cfg
from rrf.envs.robots.so101_sim import SO101Sim, SO101SimConfig

AT_REST = {
    "shoulder_pan.pos": 0.0,
    "shoulder_lift.pos": -20.0,
    "elbow_flex.pos": 30.0,
    "wrist_flex.pos": 60.0,
    "wrist_roll.pos": 0.0,
    "gripper.pos": 60.0,
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """A workspace; the working directory too."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cfg() -> RobotCfg:
    """The config that is shipped."""
    return load_robot_cfg("so101-sim")


@pytest.fixture
def robot() -> Iterator[SO101Sim]:
    """Connected, without cameras."""
    robot = SO101Sim(SO101SimConfig(views=[]))
    robot.connect()
    yield robot
    if robot.is_connected:
        robot.disconnect()
