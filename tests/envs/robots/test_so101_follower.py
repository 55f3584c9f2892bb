"""lerobot's own SO101Follower behind the guard, with motors at the other end of a serial line."""

import json

import pytest

from rrf.envs.robots.configs import JointCfg, RobotCfg
from rrf.envs.robots.devices import features_of, make_robot
from rrf.envs.robots.guard import Guard, RobotStoppedError
from tests.envs.robots.feetech_bus import GOAL, PRESENT, TORQUE, FeetechBus
from tests.envs.robots.test_guard import Events

pytest.importorskip("scservo_sdk", reason="needs: pip install 'lerobot[feetech]'")

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


def _patient(port, packet_length: int) -> None:
    """lerobot waits 50 ms for motors; these are on a machine that does other things too."""
    port.packet_start_time, port.packet_timeout = port.getCurrentTime(), 1000.0


@pytest.fixture
def bus():
    bus = FeetechBus()
    yield bus
    bus.close()


@pytest.fixture
def cfg(bus, tmp_path, monkeypatch) -> RobotCfg:
    monkeypatch.setattr("lerobot.robots.robot.HF_LEROBOT_CALIBRATION", tmp_path)
    monkeypatch.setattr("lerobot.motors.feetech.feetech.patch_setPacketTimeout", _patient)
    calibration = {
        name: {
            "id": 1 + n,
            "drive_mode": 0,
            "homing_offset": 0,
            "range_min": 1024,
            "range_max": 3072,
        }
        for n, name in enumerate(JOINTS)
    }
    file = tmp_path / "robots/so_follower/mine.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(calibration))
    joint = JointCfg(unit="deg", min=-80, max=80, max_speed=300)
    joints = {f"{name}.pos": joint for name in JOINTS}
    joints["gripper.pos"] = JointCfg(unit="0..100", min=0, max=100, max_speed=300)
    return RobotCfg(
        name="mine",
        robot={"type": "so101_follower", "port": bus.port, "id": "mine"},
        instruction="wave",
        fps=30,
        joints=joints,
        on_limit="torque_off",
    )


@pytest.fixture
def guarded(cfg):
    robot, events = make_robot(cfg), Events()
    guard = Guard(robot, cfg, events)
    robot.connect()
    yield guard, robot, events
    guard.close()


def test_degrees_become_steps_of_the_motors_and_back(guarded, bus):
    guard, robot, _ = guarded
    assert features_of(robot).states == tuple(f"{name}.pos" for name in JOINTS)
    seen = guard.observe()
    assert seen["shoulder_pan.pos"] == pytest.approx(0, abs=0.1)
    assert seen["gripper.pos"] == pytest.approx(50, abs=0.1)
    sent = guard.send(guard.command | {"shoulder_pan.pos": 9.0, "gripper.pos": 55.0})
    assert sent["shoulder_pan.pos"] == 9.0
    # 4095 steps are 360 degrees; the gripper's range is 1024 to 3072
    assert bus.get(1, GOAL) == pytest.approx(2048 + 9 / 360 * 4095, abs=1)
    assert bus.get(6, GOAL) == pytest.approx(1024 + 0.55 * 2048, abs=1)
    assert guard.observe()["shoulder_pan.pos"] == pytest.approx(9, abs=0.1)


def test_a_command_that_is_too_fast_never_reaches_a_motor_which_lets_go(guarded, bus):
    guard, _, events = guarded
    guard.observe()
    assert all(bus.memory[number][TORQUE] for number in bus.memory)
    with pytest.raises(RobotStoppedError, match=r"elbow_flex.pos would move by 600 deg/s"):
        guard.send(guard.command | {"elbow_flex.pos": 20.0})
    assert bus.get(3, GOAL) == 2048
    assert not any(bus.memory[number][TORQUE] for number in bus.memory)
    bus.set(3, PRESENT, 2200)  # it sinks
    guard.resume()
    assert all(bus.memory[number][TORQUE] for number in bus.memory)
    assert bus.get(3, PRESENT) == pytest.approx(2200, abs=1)  # and is not torn back
    assert [event["event"] for event in events] == ["stopped", "resumed"]


def test_a_cable_that_comes_off_stops_the_robot(guarded, bus):
    guard, _, events = guarded
    guard.observe()
    bus.is_plugged = False
    with pytest.raises(RobotStoppedError, match=r"the robot does not answer: .*Present_Position"):
        guard.observe()
    bus.is_plugged = True
    guard.resume()
    assert guard.observe()["shoulder_pan.pos"] == pytest.approx(0, abs=0.1)
    assert "not_safe" in [event["event"] for event in events]
