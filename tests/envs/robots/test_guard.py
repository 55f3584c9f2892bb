"""The guard between actions and the robot: every way to be stopped, and to go on."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from rrf.envs.robots.guard import Guard, RobotStoppedError
from rrf.envs.robots.so101_sim import SO101Sim, SO101SimConfig
from tests.envs.robots.conftest import AT_REST


class Events(list):
    """A log in memory."""

    def __call__(self, event: str, **facts) -> None:
        self.append({"event": event} | facts)


@pytest.fixture
def guarded(cfg, robot) -> Callable:
    """Makes a guard of the robot, with changed settings."""
    guards = []

    def make(device=robot, is_dry=False, **changes) -> tuple[Guard, Events]:
        events = Events()
        guard = Guard(device, cfg.override(changes), events, is_dry)
        guards.append(guard)
        return guard, events

    yield make
    for guard in guards:
        guard.close()


def moved(guard: Guard, name: str, by: float) -> dict[str, float]:
    return guard.command | {name: guard.command[name] + by}


def test_a_command_within_the_limits_is_executed(guarded, robot):
    guard, events = guarded()
    before = guard.observe()["shoulder_pan.pos"]
    for _ in range(5):
        guard.send(moved(guard, "shoulder_pan.pos", 4.0))
        seen = guard.observe()
    assert seen["shoulder_pan.pos"] == pytest.approx(before + 20, abs=3)
    assert events == []


@pytest.mark.parametrize(
    ("name", "by", "kind"),
    [
        ("shoulder_pan.pos", 21.0, "speed"),  # 210 deg/s at 10 steps/s, of 200
        ("shoulder_pan.pos", 100.0, "joint_range"),
        ("shoulder_pan.pos", float("nan"), "joint_range"),
        ("gripper.pos", -70.0, "joint_range"),
    ],
)
def test_one_beyond_is_not_and_the_robot_holds(guarded, robot, name, by, kind):
    guard, events = guarded()
    robot.begin_episode(3)
    guard.observe()
    with pytest.raises(RobotStoppedError, match=name) as stopped:
        guard.send(moved(guard, name, by) if by == by else guard.command | {name: by})
    assert stopped.value.kind == kind
    assert [event["event"] for event in events] == ["stopped"]
    held = robot.get_observation()
    assert abs(held[name] - robot.scene.positions()[name.removesuffix(".pos")]) < 1e-9
    assert robot.num_commands == 1  # the one that holds


def test_after_a_stop_nothing_moves_the_robot_until_it_is_resumed(guarded, robot):
    guard, events = guarded()
    guard.observe()
    guard.stop("stop_key", "by hand")
    sent = robot.num_commands
    for step in (guard.observe, lambda: guard.send(AT_REST)):
        with pytest.raises(RobotStoppedError, match="by hand"):
            step()
    assert robot.num_commands == sent
    guard.resume()
    guard.observe()
    guard.send(guard.command)
    assert [event["event"] for event in events] == ["stopped", "resumed"]


def test_the_fingertips_stay_above_the_table(guarded, robot):
    guard, _ = guarded()
    guard.observe()

    def lower():
        for _ in range(40):
            guard.send(moved(guard, "shoulder_lift.pos", 5.0))
            guard.observe()

    with pytest.raises(RobotStoppedError, match="tip would be at") as stopped:
        lower()
    assert stopped.value.kind == "workspace"
    assert robot.scene.data.site("tip").xpos[2] > 0


def test_motors_let_go_if_that_is_the_setting_and_hold_again_when_resumed(guarded, robot):
    guard, _ = guarded(on_limit="torque_off")
    guard.observe()
    height = robot.scene.data.site("tip").xpos[2]
    guard.stop("stop_key", "by hand")
    assert not robot.bus.has_torque
    robot.scene.advance(0.5)
    assert robot.scene.data.site("tip").xpos[2] < height - 0.02  # it sinks
    sunk = robot.get_observation()["elbow_flex.pos"]
    assert sunk > AT_REST["elbow_flex.pos"] + 15
    guard.resume()
    assert robot.bus.has_torque
    assert guard.observe()["elbow_flex.pos"] == pytest.approx(sunk, abs=5)  # not to its last goal


def test_an_action_that_comes_long_after_its_observation_is_not_sent(guarded, robot):
    guard, _ = guarded(real_time=True, max_age_s=0.8)
    guard.observe()
    guard.send(guard.command)
    guard.observe()
    time.sleep(0.9)
    with pytest.raises(RobotStoppedError, match=r"after its observation, allowed: 0.8") as stopped:
        guard.send(guard.command)
    assert stopped.value.kind == "stale"


def test_a_camera_that_stands_still_stops_the_robot(guarded):
    device = SO101Sim(SO101SimConfig(image_size=16))
    device.connect()
    guard, _ = guarded(device, max_frozen_s=0.25)
    for _ in range(3):
        guard.observe()
    with pytest.raises(RobotStoppedError, match=r"'front' has shown one picture for 0.3 s"):
        guard.observe()
    guard.resume()
    for _ in range(6):  # the arm moves
        guard.observe()
        guard.send(moved(guard, "shoulder_pan.pos", 5.0))


class Unplugged(SO101Sim):
    """Its cable comes off."""

    is_plugged = True

    def get_observation(self):
        if not self.is_plugged:
            raise ConnectionError("the cable is off")
        return super().get_observation()

    def send_action(self, action):
        if not self.is_plugged:
            raise ConnectionError("the cable is off")
        return super().send_action(action)


def test_a_robot_that_does_not_answer_is_stopped_and_can_go_on(guarded):
    device = Unplugged(SO101SimConfig(views=[]))
    device.connect()
    guard, events = guarded(device)
    guard.observe()
    device.is_plugged = False
    with pytest.raises(RobotStoppedError, match="does not answer: the cable is off") as stopped:
        guard.observe()
    assert stopped.value.kind == "device"
    assert "not_safe" in [event["event"] for event in events]
    device.is_plugged = True
    guard.resume()
    guard.observe()
    guard.send(guard.command)


def test_numbers_that_are_none_stop_it_too(guarded, robot):
    guard, _ = guarded()
    robot.scene.data.qpos[robot.scene._qpos[0]] = np.nan
    with pytest.raises(RobotStoppedError, match=r"says that shoulder_pan.pos is nan"):
        guard.observe()

    held = robot.scene.data.ctrl
    assert np.isfinite(held).all()  # and is not told to hold where it is not


class Blind(SO101Sim):
    """It does not say how far its gripper is open."""

    def get_observation(self):
        return {k: v for k, v in super().get_observation().items() if k != "gripper.pos"}


def test_a_joint_that_is_not_observed_is_not_taken_to_be_at_zero(guarded):
    device = Blind(SO101SimConfig(views=[]))
    device.connect()
    sent = []
    device.send_action, send = (
        (lambda action: sent.append(action) or send(action)),
        device.send_action,
    )
    guard, _ = guarded(device)
    guard.observe()
    guard.hold()
    assert "gripper.pos" not in sent[0]
    guard.send(guard.command | {"gripper.pos": 80.0})  # there is nothing to compare it with
    with pytest.raises(RobotStoppedError, match=r"gripper.pos would move by 400"):
        guard.send(guard.command | {"gripper.pos": 40.0})
    assert sent[-1]["gripper.pos"] == 80.0  # held where it was told to be


def test_the_watchdog_stops_a_loop_that_hangs(guarded, robot):
    guard, events = guarded(watchdog_s=0.8)
    guard.observe()
    guard.watch(True)
    for _ in range(5):  # as long as steps come, nothing happens
        time.sleep(0.2)
        guard.send(guard.command)
    assert events == []
    sent = robot.num_commands
    time.sleep(1.5)
    assert [event.get("why") for event in events] == ["watchdog"]
    assert robot.num_commands == sent + 1  # it was told to hold
    with pytest.raises(RobotStoppedError, match=r"no control step for 0.8 s"):
        guard.send(guard.command)
    guard.watch(False)
    guard.resume()
    time.sleep(1.2)
    assert len(events) == 2  # no longer watched


class Slow(SO101Sim):
    """Its bus hangs."""

    wait_s = 0.0

    def get_observation(self):
        time.sleep(self.wait_s)
        return super().get_observation()


def test_a_robot_that_hangs_itself_is_made_safe_as_soon_as_it_answers(guarded):
    device = Slow(SO101SimConfig(views=[]))
    device.connect()
    guard, events = guarded(device, watchdog_s=0.1, on_limit="torque_off")
    guard.observe()
    guard.watch(True)
    device.wait_s = 0.8
    guard.observe()  # hangs, and comes back
    with pytest.raises(RobotStoppedError, match="itself does not answer"):
        guard.send(guard.command)
    assert [event.get("why") for event in events] == ["watchdog"]
    assert not device.bus.has_torque


def test_the_stop_key_works_while_the_policy_thinks(guarded, robot):
    guard, _ = guarded()
    guard.observe()
    threading.Timer(0.1, guard.stop, ("stop_key", "by hand")).start()
    time.sleep(0.3)  # the policy thinks
    sent = robot.num_commands
    with pytest.raises(RobotStoppedError, match="by hand"):
        guard.send(guard.command)
    assert robot.num_commands == sent


def test_a_dry_run_sends_nothing_and_says_what_would_be_stopped(guarded, robot):
    guard, events = guarded(is_dry=True)
    guard.observe()
    for _ in range(4):
        guard.send(moved(guard, "shoulder_pan.pos", 10.0))
    guard.send(guard.observe())  # back to where it is: a new chunk
    with pytest.raises(RobotStoppedError, match=r"shoulder_pan.pos would move"):
        guard.send(moved(guard, "shoulder_pan.pos", 25.0))
    guard.close()
    assert robot.num_commands == 0
    assert [event["event"] for event in events] == ["stopped", "closed"]


def test_closing_leaves_the_robot_safe_and_disconnected(guarded, robot):
    guard, events = guarded(on_limit="torque_off")
    guard.observe()
    guard.close()
    assert events == [{"event": "closed"}]
    assert not robot.bus.has_torque
    assert not robot.is_connected
    guard.close()  # twice is allowed
