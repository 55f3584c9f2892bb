"""Episodes on a robot: how they end, what is kept, the operator's keys, and stops."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from rrf.envs.robots.devices import teleop_act
from rrf.envs.robots.guard import Guard
from rrf.envs.robots.recording import Recording
from rrf.envs.robots.session import Actor, Keys, Session
from rrf.envs.robots.so101_sim import (
    SO101Sim,
    SO101SimConfig,
    SO101SimLeader,
    SO101SimLeaderConfig,
)
from tests.envs.robots.conftest import AT_REST
from tests.envs.robots.test_guard import Events

NAMES = list(AT_REST)


class Arm(SO101Sim):
    """As a real arm: nobody but the operator prepares its scene or says what is solved."""

    begin_episode = None  # type: ignore[assignment]


def still(observation) -> dict[str, float]:
    """A policy that stays where it is."""
    return {name: observation[name] for name in NAMES}


class Desk:
    """A session with everything around it."""

    def __init__(self, cfg, robot, act=still, is_there=False, is_person=False, name="mine", **more):
        self.lines: list[str] = []
        self.events, self.keys, self.robot = Events(), Keys(is_there), robot
        self.guard = Guard(robot, cfg, self.events)
        self.recording = Recording(name, cfg, cfg.schema(NAMES, NAMES, {}))
        begin: Callable[[int], None] = more.pop("begin", lambda index: None)
        self._answers: dict[str, tuple[str, ...]] = more.pop("answers", {})
        actor = Actor(act, begin, is_person)
        self.session = Session(
            cfg, robot, self.guard, actor, self.keys, self._say, self.events,
            self.recording, **more,
        )  # fmt: skip

    def _say(self, line: str) -> None:
        self.lines.append(line)
        for key in self._answers.get(line, ()):
            self.keys.press(key)

    def __enter__(self):
        self.recording.__enter__()
        return self

    def __exit__(self, *exception):
        self.guard.close()
        self.recording.__exit__(*exception)


@pytest.fixture
def arm():
    robot = Arm(SO101SimConfig(views=[], fps=50))
    robot.connect()
    return robot


@pytest.fixture
def real(cfg):
    """The settings of a robot that runs in real time."""
    changes = {"real_time": True, "fps": 50.0, "episode_s": 1.0, "reset_s": 0.0}
    return cfg.override(changes | {"max_age_s": 5.0, "max_late_s": 5.0, "watchdog_s": 5.0})


@pytest.fixture
def leader(cfg):
    leader = SO101SimLeader(SO101SimLeaderConfig())
    leader.connect()
    return leader


def test_a_person_shows_and_only_what_is_solved_is_kept(cfg, robot, leader):
    act = teleop_act(cfg, leader)
    with Desk(
        cfg, robot, act, is_person=True, begin=leader.begin_episode, is_demonstration=True
    ) as (desk):
        # of the episodes 26 to 30, the leader does not solve number 28
        results = desk.session.run(4, first=26)
        assert [result.index for result in results] == [26, 27, 29, 30]
        assert all(result.success for result in results)
        assert desk.recording.num_episodes == 4
    assert "not solved (time), 60 steps, 6.0 s; not kept" in desk.lines[2]
    kept = [event["kept"] for event in desk.events if event["event"] == "episode"]
    assert kept == [True, True, False, True, True]


def test_ten_failures_in_a_row_are_enough_where_nobody_is_asked(cfg, robot):
    cfg = cfg.override({"episode_s": 0.2})
    with (
        Desk(cfg, robot, is_demonstration=True) as desk,
        pytest.raises(ValueError, match="10 episodes in a row were not solved"),
    ):
        desk.session.run(1)
    assert len(desk.lines) == 10


def test_what_a_policy_does_is_kept_solved_or_not(cfg, robot):
    cfg = cfg.override({"episode_s": 0.5})
    with Desk(cfg, robot) as desk:
        results = desk.session.run(2, first=40)
        assert [(result.success, result.how, result.steps) for result in results] == [
            (False, "time", 5),
            (False, "time", 5),
        ]
        assert desk.recording.finish() == 10


def test_a_policy_beyond_a_limit_is_stopped_and_the_next_episode_goes_on(cfg, robot):
    steps = []

    def jumps(observation):
        steps.append(0)
        return still(observation) | {"shoulder_pan.pos": 50.0 if len(steps) == 3 else 0.0}

    cfg = cfg.override({"episode_s": 0.5})
    with Desk(cfg, robot, jumps) as desk:
        stopped, whole = desk.session.run(2)
        assert (stopped.how, stopped.steps, whole.how) == ("stopped: speed", 2, "time")
        assert desk.recording.num_episodes == 2  # the two steps before are kept, too
    assert desk.lines[0].startswith("STOPPED (speed): shoulder_pan.pos would move by")
    assert [e["event"] for e in desk.events if e["event"] not in ("episode", "begins")] == [
        "stopped",
        "resumed",
        "closed",
    ]


def test_a_real_robot_that_was_stopped_waits_for_somebody(real, arm):
    with (
        Desk(real, arm, lambda seen: still(seen) | {"gripper.pos": 500.0}) as desk,
        pytest.raises(ValueError, match=r"gripper.pos is 500.0.*the same command to go on"),
    ):
        desk.session.run(1)


def test_after_a_stop_the_operator_says_how_to_go_on(real, arm):
    calls = []

    def once_beyond(observation):
        calls.append(0)
        if len(calls) == 1:
            desk.keys.press("n")  # before the stop, and so not meant for it
            return still(observation) | {"gripper.pos": 500.0}
        desk.keys.press("s")
        return still(observation)

    answers = {"n goes on, r begins the episode again, q ends": ("x", "r")}  # x is no answer
    with Desk(real, arm, once_beyond, is_there=True, answers=answers) as desk:
        (result,) = desk.session.run(1)
    assert (result.success, result.how, result.steps) == (True, "solved", 1)
    assert len(calls) == 2


@pytest.mark.parametrize(("key", "success", "how"), [("s", True, "solved"), ("f", False, "failed")])
def test_keys_end_an_episode(real, arm, key, success, how):
    calls = []

    def presses(observation):
        calls.append(0)
        if len(calls) == 5:
            desk.keys.press(key)
        return still(observation)

    with Desk(real, arm, presses, is_there=True) as desk:
        (result,) = desk.session.run(1)
    assert (result.success, result.how, result.steps) == (success, how, 5)


def test_an_episode_without_a_verdict_is_asked_for_one(real, arm):
    with Desk(real, arm, is_there=True) as desk:
        for key in ("right", "s"):  # end it; it was solved
            desk.keys.press(key)
        (result,) = desk.session.run(1)
        assert (result.success, result.how) == (True, "ended")
    assert "solved? s yes, f no, r record it again, q end without it" in desk.lines


def test_again_throws_the_episode_away_and_q_ends(real, arm):
    real = real.override({"episode_s": 0.2})
    with Desk(real, arm, is_there=True) as desk:
        for key in ("left", "n", "s", "n", "f", "esc"):
            desk.keys.press(key)
        results = desk.session.run(5)
        assert [result.success for result in results] == [True, False]
        assert desk.recording.num_episodes == 0  # ended before their first step: nothing to keep
    assert len([line for line in desk.lines if "not kept" in line]) == 2


def test_the_stop_key_is_not_waited_for(real, arm):
    sent = []

    def thinks(observation):
        threading.Timer(0.1, desk.keys.press, ("space",)).start()
        time.sleep(0.5)
        sent.append(arm.num_commands)
        return still(observation)

    answers = {"n goes on, r begins the episode again, q ends": ("q",)}
    with Desk(real, arm, thinks, is_there=True, answers=answers) as desk:
        assert desk.session.run(1) == []
        assert sent == [1]  # it holds already, while the policy still thinks
        assert arm.num_commands == 1
    assert desk.lines[1].startswith("STOPPED (stop_key)")


def test_a_late_step_stops_and_small_delays_are_counted(real, arm):
    pauses = iter([0.0, 0.06, 0.0, 0.4])

    def slow(observation):
        time.sleep(next(pauses, 0.0))
        return still(observation)

    answers = {"n goes on, r begins the episode again, q ends": ("q",)}
    late = real.override({"max_late_s": 0.3})
    with Desk(late, arm, slow, is_there=True, answers=answers) as desk:
        assert desk.session.run(1) == []
    assert "STOPPED (late): a control step is 0." in desk.lines[1]


def test_the_first_observation_may_take_long(real):
    robot = Arm(SO101SimConfig(views=[], fps=50))
    robot.connect()
    observe, pauses = robot.get_observation, iter([0.5])

    def slow_at_first():
        time.sleep(next(pauses, 0.0))
        return observe()

    robot.get_observation = slow_at_first  # a camera that starts, kernels that are compiled
    with Desk(real.override({"max_late_s": 0.4, "episode_s": 0.1}), robot) as desk:
        assert [result.how for result in desk.session.run(1)] == ["time"]


def test_steps_come_at_the_rate_and_a_late_one_is_not_made_up_for(real, arm):
    times = []

    def clocked(observation):
        times.append(time.monotonic())
        if len(times) == 5:
            time.sleep(0.2)
        return still(observation)

    real = real.override({"fps": 20.0})
    with Desk(real, arm, clocked) as desk:
        (result,) = desk.session.run(1)
    gaps = np.diff(times)
    assert result.steps == 20
    assert result.late_steps >= 1
    assert gaps.min() > 0.03  # never hurried, not after the late step either


def test_a_robot_goes_slowly_to_where_the_person_stands(real, arm):
    goal = AT_REST | {"shoulder_pan.pos": 40.0}
    sent = []
    arm.send_action, send = (lambda action: (sent.append(action), send(action))[1]), arm.send_action
    with Desk(real, arm, lambda seen: goal, is_person=True, is_demonstration=True) as desk:
        desk.session.run(1)
        pan = np.array([action["shoulder_pan.pos"] for action in sent[:-2]])
        steps = np.abs(np.diff(pan))
        # 200 deg/s at 50 steps/s, of which a quarter: 1 degree, then the rest at once
        assert steps[:30].max() < 1.01
        assert pan.max() == 40.0
        assert len(sent) > 30 + 50


def test_a_teleoperator_that_is_unplugged_stops_the_robot(real, arm):
    def unplugged(observation):
        raise ConnectionError("no leader")

    with (
        Desk(real, arm, unplugged) as desk,
        pytest.raises(ValueError, match="there is no action: no leader"),
    ):
        desk.session.run(1)
    assert desk.events[1]["why"] == "device"


class Told:
    """A witness that presses a key after so many steps."""

    def __init__(self, presses):
        self.by_operator, self.sent, self._presses = [], [], presses

    def begins(self, index):
        """An episode begins."""

    def saw(self, observation, sent, by_operator):
        """A control step."""
        self.by_operator.append(by_operator)
        self.sent.append(sent)
        if key := self._presses.get(len(self.sent)):
            self.desk.keys.press(key)

    def ended(self, result):
        """It is over."""


def test_an_operator_takes_over_and_hands_back_and_it_is_told_who_acted(real, arm):
    there = {name: value + 8 for name, value in arm.get_observation().items() if name in NAMES}
    begun, told = [], Told({3: "o", 6: "o", 9: "s"})
    operator = Actor(lambda observation: there, begun.append, is_person=True)
    with Desk(real, arm, is_there=True, witness=told, operator=operator) as desk:
        told.desk = desk
        (result,) = desk.session.run(1, first=4)
    assert told.by_operator == [False] * 3 + [True] * 3 + [False] * 3
    assert told.sent[3] == there  # the robot had gone there slowly, which is no step
    assert begun == [4]
    assert (result.steps, result.operator_steps, result.success) == (9, 3, True)
    assert desk.lines == ["go", "the operator acts", "the policy acts", *desk.lines[3:]]
    assert "9 steps, 0." in desk.lines[-1]
    assert "3 of the operator" in desk.lines[-1]


def test_a_policy_without_an_operator_is_not_taken_over_from(real, arm):
    told = Told({1: "o", 3: "s"})
    with Desk(real, arm, is_there=True, witness=told) as desk:
        told.desk = desk
        desk.session.run(1)
    assert told.by_operator == [False] * 3
