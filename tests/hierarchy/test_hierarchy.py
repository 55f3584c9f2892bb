"""Three systems that fit or do not fit, on one clock, and what happens when one of them is gone."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from rrf.envs.humanoid.simulated_robot import SimulatedRobot, standing_data
from rrf.hierarchy import play
from rrf.hierarchy.configs import HierarchyCfg, SystemCfg
from rrf.hierarchy.interfaces import Sent, check_fits, taken_by
from rrf.hierarchy.runtime import Runtime, Simulated
from rrf.runners.checkpoints.control import INTERFACE
from tests.hierarchy.conftest import SENDS, arm, look, written


def played(cfg, robot, seconds=1.0):
    events = []
    result = play.play_simulated(cfg, robot, seconds, lambda *event: events.append(event))
    return result, events


def test_on_a_simulated_clock_the_same_start_gives_the_same_episode(cfg, model):
    ends = []
    for _ in range(2):
        robot = SimulatedRobot(model, standing_data(model), look)
        result, _ = played(cfg, robot)
        ends.append(robot.data.qpos.copy())
        assert result.ticks == 50
        assert result.answers == {"system2": 2, "system1": 5}
        assert result.stopped is None
        assert result.late_requests == {"system2": 0, "system1": 0}
    assert np.array_equal(*ends)


def test_system_1_is_told_how_old_its_features_are(cfg, robot):
    told = []

    def act(features, age_s, observation):
        told.append(round(age_s, 6))
        return np.zeros((5, 4))

    slow = cfg.replace(system2=cfg.system2.replace(latency_s=0.2))
    runtime = Runtime(
        slow, robot, Simulated(lambda seen: np.zeros((1, 3, 8)), 10), Simulated(act),
        play.load_balancer(cfg.system0.policy, robot.model), list(SENDS), 1.0,
    )  # fmt: skip
    for _ in range(80):
        runtime.tick()
    # System 2 sees at 0, 0.5 and 1 s, and answers at 0.2, 0.7 and 1.2 s
    assert told == [0.2, 0.4, 0.6, 0.3, 0.5, 0.2, 0.4]


def test_commands_of_a_chunk_are_executed_in_turn_from_when_it_was_asked(cfg, robot):
    chunk = np.zeros((5, 4))
    chunk[:, 2] = [0.1, 0.2, 0.3, 0.4, 0.5]
    late = cfg.replace(system1=cfg.system1.replace(latency_s=0.1, hz=2.0))
    runtime = Runtime(
        late, robot, Simulated(lambda seen: np.zeros((1, 3, 8))),
        Simulated(lambda *question: chunk, 5),
        play.load_balancer(cfg.system0.policy, robot.model), list(SENDS), 1.0,
    )  # fmt: skip
    sent = []
    for _ in range(25):
        runtime.tick()
        sent.append(runtime.command_36[arm("vx")])
    assert sent == [0.0] * 5 + [0.2] * 5 + [0.3] * 5 + [0.4] * 5 + [0.5] * 5


def test_a_question_that_finds_the_last_one_unanswered_is_counted(cfg, robot):
    slow = cfg.replace(system2=cfg.system2.replace(latency_s=0.7))
    runtime = Runtime(
        slow, robot, Simulated(lambda seen: np.zeros((1, 3, 8)), 35),
        Simulated(lambda *question: np.zeros((5, 4))),
        play.load_balancer(cfg.system0.policy, robot.model), list(SENDS), 2.0,
    )  # fmt: skip
    for _ in range(100):
        runtime.tick()
    assert runtime.counts.late_requests == {"system2": 2, "system1": 0}


def test_features_older_than_the_limit_stop_the_robot(cfg, robot):
    class Deaf(Simulated):
        def answer(self, tick):
            return super().answer(tick) if tick < 10 else None

    events = []
    runtime = Runtime(
        cfg, robot, Deaf(lambda seen: np.zeros((1, 3, 8))),
        Simulated(lambda *question: np.full((5, 4), 0.1)),
        play.load_balancer(cfg.system0.policy, robot.model), list(SENDS), 0.6,
        lambda *event: events.append(event),
    )  # fmt: skip
    for _ in range(60):
        runtime.tick()
    assert runtime.stopped is not None
    assert (
        "features of System 2 are 0.80 s old, and System 1 allows 0.6 s" in runtime.stopped.reason
    )
    assert runtime.command_36[arm("vx")] == 0.0
    assert runtime.command_36[arm("left_elbow_joint")] == pytest.approx(0.1)  # nothing is dropped
    assert events[-1][0] == "stop"


def test_a_system_1_that_sends_nothing_more_stops_the_robot(cfg, robot):
    class Deaf(Simulated):
        def answer(self, tick):
            return super().answer(tick) if tick < 5 else None

    runtime = Runtime(
        cfg, robot, Simulated(lambda seen: np.zeros((1, 3, 8))),
        Deaf(lambda *question: np.zeros((5, 4))),
        play.load_balancer(cfg.system0.policy, robot.model), list(SENDS), 5.0,
    )  # fmt: skip
    for _ in range(60):
        runtime.tick()
    assert runtime.stopped is not None
    assert "sent nothing for 0.52 s after the end of its chunk" in runtime.stopped.reason


def test_a_robot_that_falls_is_stopped(cfg, robot):
    robot.data.qvel[4] = 6.0  # thrown over
    result, events = played(cfg, robot, 2.0)
    assert result.stopped is not None
    assert result.stopped.reason == "the robot has fallen"
    assert ("stop", {"tick": result.stopped.tick, "reason": "the robot has fallen"}) in events


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["system2", "system1", "system0"])
@pytest.mark.parametrize("after", [0, 15])
def test_a_killed_process_ends_in_a_safe_stop_that_is_logged(cfg, model, tmp_path, killed, after):
    pids, log = {}, play.JsonLog(tmp_path / "log.jsonl")

    class Mortal(SimulatedRobot):
        ticks = 0

        def read(self):
            self.ticks += 1
            if self.ticks == after + 1:
                os.kill(pids[killed], signal.SIGKILL)
            return super().read()

    robot = Mortal(model, standing_data(model), look)
    result = play.play(cfg, robot, 3.0, log, pids.update)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    stop = next(line for line in lines if line["event"] == "stop")
    assert f"System {killed[-1]} (pid {pids[killed]}) died" in stop["reason"]
    assert result.stopped is not None
    assert result.ticks == 150  # the clock went on
    assert (robot.halted is not None) == (killed == "system0")


@pytest.mark.slow
def test_on_a_real_clock_each_system_is_a_process(cfg, robot):
    pids = {}
    result = play.play(cfg, robot, 2.0, on_start=pids.update)
    assert len(set(pids.values())) == 3
    assert result.ticks == 100
    assert result.answers["system2"] >= 1
    assert result.answers["system1"] >= 1
    assert result.timing.p99_ms > 0
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system1": SystemCfg(hz=15.0)}, r"system1\.hz is 15 and system0\.hz is 50, of .*=12\.5 "),
        ({"system2": SystemCfg(hz=3.0)}, r"system2\.hz is 3 and system0\.hz is 50, .*=3\.125 "),
        ({"chunk_hz": 30.0}, "chunk_hz is 30 and system0"),
        ({"system1": SystemCfg(hz=25.0)}, "does not divide"),
        ({"held": {"vz": 1.0}}, "no signal 'vz'"),
        ({"held": {"height": 3.0}}, r"height is 3\.0, allowed: 0\.5 to 0\.78 m"),
        ({"frames": {"vx": "world"}}, "vx is in the frame 'world', allowed: joint, heading, start"),
        ({"max_wait_s": 0.0}, "max_wait_s"),
    ],
)
def test_bad_configs_say_what_is_allowed(change, message):
    with pytest.raises(ValueError, match=message):
        HierarchyCfg(**change)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (Sent("vx", "km/h"), r"sends vx \(km/h, frame not said\), but System 0 takes vx \(m/s"),
        (Sent("vx", "m/s", "start"), r"vx \(m/s, frame start\).* the frames differ"),
        (Sent("vz", "m/s"), "vz .*which System 0 does not take"),
        (Sent("left_hand_thumb_0_joint", "rad"), "this robot has no such hand"),
        (Sent("height", "m"), "height twice"),
    ],
)
def test_what_does_not_fit_is_named_with_unit_and_frame(system0, model, robot, sent, message):
    takes = taken_by(system0, robot.joints)
    check_fits([Sent("height", "m")], takes)
    with pytest.raises(ValueError, match=message):
        check_fits([Sent("height", "m"), sent], takes)


@pytest.mark.parametrize(
    ("said", "instead", "message"),
    [
        ("command_signals", "signals", "does not say units and frames"),
        ("left_knee_joint", "left_shin_joint", "is no System 0 of this robot: .*left_shin_joint"),
    ],
)
def test_what_a_system_0_does_not_say_or_is_not_for_is_refused(
    system0, tmp_path, said, instead, message
):
    copy = shutil.copytree(system0, tmp_path / "system0")
    file = copy / INTERFACE
    file.write_text(file.read_text().replace(said, instead))
    with pytest.raises(ValueError, match=message):
        taken_by(copy, ())


def test_a_system_1_below_is_no_system_0(cfg, robot):
    upside = cfg.replace(system0=SystemCfg(policy=cfg.system1.policy, hz=50.0))
    with pytest.raises(ValueError, match="is a policy that sees images, no System 0; train one"):
        play.check(upside, robot.joints)


def test_rates_that_the_systems_were_not_trained_for_are_refused(cfg, robot):
    def refused(message, **changes):
        with pytest.raises(ValueError, match=message):
            play.check(cfg.replace(**changes), robot.joints)

    policy = cfg.system1.policy
    refused("trained on 10 actions per second; set chunk_hz=10", chunk_hz=25.0)
    fast = SystemCfg(policy=cfg.system0.policy, hz=100.0)
    refused("System 0 was trained at 50", system0=fast)
    refused(r"raise system2\.hz", system2=SystemCfg(policy=policy, hz=0.5))
    slow = SystemCfg(policy=policy, hz=1.0)
    refused("over before it is asked again", system1=slow, system2=slow)


def test_a_policy_in_one_part_is_refused(cfg, robot, system0):
    with pytest.raises(ValueError, match=r"is not in two parts \(a state-based policy\)"):
        play.check(cfg.replace(system1=SystemCfg(policy=str(system0), hz=5.0)), robot.joints)


def test_a_system_1_that_sees_the_past_is_refused(cfg, robot, tmp_path):
    remembers = written(tmp_path, past_states=2)
    system1 = cfg.system1.replace(policy=str(remembers))
    with pytest.raises(ValueError, match="sees 2 past states, which the clock does not keep"):
        play.check(cfg.replace(system1=system1), robot.joints)


def test_a_policy_without_units_is_refused(cfg, robot, tmp_path):
    blank = written(tmp_path, action_names=[], action_units=[])
    with pytest.raises(ValueError, match="does not know the names and units of its actions"):
        play.check(cfg.replace(system1=SystemCfg(policy=str(blank), hz=5.0)), robot.joints)
