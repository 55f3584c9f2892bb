"""`rrf record` and `rrf play --robot`: with the simulated SO-101, whole and killed and stopped."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from rrf import workspace
from rrf.config import read_yaml
from rrf.data import episode_log
from rrf.data.dataset.opening import open_dataset
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.policies.vla.configs import FlowMatchingHeadCfg
from rrf.presets import resolve
from rrf.registry import changes, loading, promotion, registration
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.checkpoint import TrainerState, save
from rrf.runners.checkpoints.deployable import deployable_digest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def arm(home) -> Path:
    """A robot of the workspace: short episodes, small pictures."""
    data = read_yaml(workspace.shipped() / "configs/robots/so101-sim.yaml")
    data |= {"name": "arm", "episode_s": 1.0}
    data["robot"] |= {"image_size": 16}
    path = home / "configs/robots/arm.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data))  # which is YAML, too
    return path


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps(read_yaml(path) | fields))


@pytest.fixture
def run(home) -> Path:
    """An untrained policy for it."""
    return _untrained(home / "run")


def _untrained(folder: Path, **policy) -> Path:
    torch.manual_seed(0)
    cfg = resolve("so101-sft-laptop", {"dataset": "arm"})
    cfg = cfg.replace(
        policy=cfg.policy.replace(
            cameras=["front"], image_size=(64, 64), state_dim=6, action_dim=6, **policy
        )
    )
    rest = [0.0, -20.0, 30.0, 60.0, 0.0, 60.0]
    stats = {
        key: {"mean": rest, "std": [1.0] * 6, "count": [10]}
        | {name: [value - 5 for value in rest] for name in ("min", "q01")}
        | {name: [value + 5 for value in rest] for name in ("max", "q99")}
        for key in ("observation.state", "action")
    }
    trainer = TrainerState({"x": torch.zeros(1)}, {"step": 1})
    weights = cfg.policy.build(stats).state_dict()
    save(folder, 1, cfg, weights, stats, trainer, Lineage((DatasetLineage("arm"),)))
    return folder


def start(home: Path, *words: str, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rrf", *words],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RRF_HOME": str(home)},
        text=True,
        **more,
    )


def events(home: Path, robot: str = "arm") -> list[dict]:
    lines = (home / f".rrf/robots/{robot}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def until(condition, timeout_s: float = 40.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.1)


def test_recording_goes_on_and_becomes_a_dataset(rrf, home):
    said = rrf("record", "--robot", "so101-sim", "mine", "--episodes", "2", "robot.image_size=16")
    assert said.code == 0, said.err
    assert "episode 2 of 2: solved (solved)" in said.out
    assert "wrote configs/datasets/mine.yaml" in said.out.replace(f"{home}/", "")
    again = rrf("record", "--robot", "so101-sim", "mine", "--episodes", "3", "robot.image_size=16")
    assert "so101-sim: 2 of 3 episodes are recorded" in again.out
    assert "episode 1 of 1: solved" in again.out
    reader = open_dataset(home / "datasets/raw/mine", chunk_length=1)
    starts = [tuple(reader.episode(number).state[0]) for number in range(3)]
    assert len(set(starts)) == 3  # each has a scene of its own
    assert rrf("data", "convert", "mine").code == 0
    assert rrf("data", "show", "mine").code == 0
    smaller = rrf("record", "--robot", "so101-sim", "mine", "--episodes", "3", "robot.image_size=8")
    assert "other features" in smaller.err
    there = rrf("record", "--robot", "so101-sim", "mine", "--episodes", "3", "robot.image_size=16")
    assert there.code == 0
    assert "3 of 3 episodes are recorded" in there.out
    assert "keyboard" not in there.out  # the robot was not even connected


@pytest.mark.slow
def test_killed_at_any_moment_no_finished_episode_is_lost(home, arm):
    change(arm, episode_s=6.0)
    words = ("record", "--robot", "arm", "--episodes", "400")
    process = start(home, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = home / "datasets/raw/arm.parts"
    until(lambda: len(list(parts.glob("episode-*"))) >= 3)
    process.kill()
    process.wait()
    finished = len(list(parts.glob("episode-*")))
    done = subprocess.run(
        [sys.executable, "-m", "rrf", *words[:-1], str(finished)],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RRF_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"arm: {finished} of {finished} episodes are recorded" in done.stdout, done.stderr
    assert len(open_dataset(home / "datasets/raw/arm", chunk_length=1).episodes) == finished
    assert not parts.exists()


@pytest.mark.slow
def test_ctrl_c_is_answered_at_once_and_the_robot_is_left_safe(home, arm):
    change(arm, real_time=True, fps=10.0, episode_s=60.0, on_limit="torque_off")
    change(arm, teleop={"type": "so101_sim_leader", "tremor": 0.0, "watches": "sim"})
    process = start(
        home, "record", "--robot", "arm", "--episodes", "9", stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: (home / ".rrf/robots/arm.jsonl").exists())
    time.sleep(1.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped by Ctrl-C: the robot is made safe" in said
    assert time.monotonic() - began < 4
    assert events(home)[-1]["event"] == "closed"
    assert not any(event["event"] == "not_safe" for event in events(home))


@pytest.mark.slow
def test_keys_of_the_terminal_end_and_stop(home, arm):
    change(arm, real_time=True, reset_s=0.0, episode_s=60.0, max_age_s=5.0, max_late_s=5.0)
    (home / "plain.py").write_text(
        "from rrf.envs.robots import so101_sim\n"
        "so101_sim.SO101Sim.begin_episode = None  # nobody but the operator judges\n"
    )
    ours, theirs = pty.openpty()
    process = start(
        home, "record", "--robot", "arm", "--episodes", "2", "--import", "plain",
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = home / ".rrf/robots/arm.jsonl"
    until(log.exists)

    def when(event: str, number: int, key: bytes) -> None:
        until(lambda: [e["event"] for e in events(home)].count(event) == number)
        time.sleep(0.5)
        os.write(ours, key)

    when("begins", 1, b"s")  # the first is solved
    when("begins", 2, b" ")  # stop
    when("stopped", 1, b"r")  # again
    when("begins", 3, b"f")
    said, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, said
    kept = [e for e in events(home) if e["event"] == "episode" and e["kept"]]
    assert [(e["success"], e["how"]) for e in kept] == [(True, "solved"), (False, "failed")]
    assert "STOPPED (stop_key): the operator pressed the stop key; the robot holds" in said
    assert len(open_dataset(home / "datasets/raw/arm", chunk_length=1).episodes) == 2


@pytest.mark.slow
def test_an_operator_takes_over_from_a_policy_and_the_log_says_so(home, arm, run):
    change(arm, real_time=True, reset_s=0.0, episode_s=60.0, max_age_s=5.0, max_late_s=5.0)
    ours, theirs = pty.openpty()
    process = start(
        home, "play", str(run), "--robot", "arm", "--operator", "--log-to", "logs",
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = home / ".rrf/robots/arm.jsonl"
    until(log.exists, timeout_s=120)
    until(lambda: any(event["event"] == "begins" for event in events(home)))
    os.write(ours, b"o")
    said, _ = process.communicate(timeout=120)  # the scripted leader lifts the cube
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, said
    assert "the operator acts" in said
    assert "success 0.000 [0.000, 0.975] (0/1); 1 more were solved with the operator" in said
    (folder,) = (home / "logs").iterdir()
    logged = episode_log.check_episode(folder)["summary"]
    assert logged["outcome"] == "success"
    assert logged["interventions"] == 1
    assert logged["operator_steps"] == logged["steps"] - logged["first_operator"]


def test_a_policy_plays_on_a_robot_and_what_it_did_is_a_dataset(rrf, home, arm, run):
    said = rrf("play", run, "--robot", "arm", "--episodes", "2", "--execute", "4", "--log", "tries")
    assert said.code == 0, said.err
    assert "run/global_step_1 on arm: success 0.000 [0.000, 0.842] (0/2)" in said.out
    reader = open_dataset(home / "datasets/raw/tries", chunk_length=1)
    assert len(reader.episodes) == 2
    assert not reader.episode(0).success.any()
    assert "wrote configs/datasets/tries.yaml" in said.out
    more = rrf("play", run, "--robot", "arm", "--seed", "7", "--log", "tries", "--log-to", "logs")
    assert "3 episodes" in more.out
    (folder,) = (home / "logs").iterdir()
    logged = episode_log.check_episode(folder)["summary"]
    digest = deployable_digest(run / "global_step_1")
    assert logged["policy"] == {"name": "run/global_step_1", "version": "", "digest": digest}
    assert (logged["outcome"], logged["robot"]) == ("failure", "arm")
    recorded = open_dataset(home / "datasets/raw/tries", chunk_length=1).episode(2)
    episode = episode_log.read_episode(folder)
    np.testing.assert_array_equal(episode.action, recorded.action)
    np.testing.assert_array_equal(episode.observations["observation.state"], recorded.state)
    assert rrf("data", "convert", "tries").code == 0


def test_a_dry_run_moves_nothing(rrf, home, arm, run):
    said = rrf("play", run, "--robot", "arm", "--dry-run", "--episodes", "1")
    assert said.code == 0, said.err
    assert "dry run of run/global_step_1: 1 episodes, " in said.out
    assert said.lines[-1].endswith("nothing was sent")
    assert events(home)[0]["dry_run"] is True
    wrong = rrf("play", run, "--robot", "arm", "--dry-run", "--log", "tries")
    assert "--log keeps what a robot did, and --dry-run moves none" in wrong.err


def test_chunks_are_executed_by_each_schedule(rrf, home, arm):
    run = _untrained(home / "flow", head=FlowMatchingHeadCfg())
    for schedule in ("receding", "ensemble", "real-time"):
        said = rrf("play", run, "--robot", "arm", "--schedule", schedule)
        assert "(0/1)" in said.out, said.err
    assert (
        "did you mean 'real-time'"
        in rrf("play", run, "--robot", "arm", "--schedule", "realtime").err
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("play", "RUN", "--robot", "arrm"), "no robot 'arrm' in"),
        (("play", "RUN", "--robot", "arm", "--task", "x"), "--task: not with --robot"),
        (("play", "RUN", "--robot", "arm", "--video", "x.mp4"), "--video: not with --robot"),
        (("play", "RUN", "--dry-run"), "--dry-run: only with --robot NAME"),
        (("play", "RUN", "--robot", "arm", "--execute", "9"), "--execute is 9, allowed: 1 to 8"),
        (("play", "RUN", "--robot", "arm", "--schedule", "real-time"), "cannot continue a running"),
        (("play", "RUN", "--operator"), "--operator: only with --robot NAME"),
        (
            ("play", "RUN", "--robot", "arm", "--operator", "--log", "x"),
            "--log keeps nothing of who acted, so --operator goes with --log-to FOLDER",
        ),
        (("play", "RUN", "--robot", "arm", "--operator"), "--operator needs a keyboard"),
        (("record", "--robot", "arm", "raw"), "datasets/raw holds something else"),
        (("record", "--robot", "arm", "fps=-1"), "fps is -1"),
        (("record", "--robot", "arm", "robot.typ=x"), "so101_sim has no field 'typ'"),
        (("record", "--robot", "arm", "--import", "nowhere"), "no module 'nowhere'"),
        (("record", "--robot", "arm", "teleop=null"), "arm has no teleoperator"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(rrf, arm, run, words, reason):
    said = rrf(*(str(run) if word == "RUN" else word for word in words))
    assert said.code == 2
    assert reason in said.err
    assert "Traceback" not in said.err


def test_a_fetched_policy_that_was_withdrawn_does_not_drive_a_robot(rrf, home, arm, run):
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    registration.register(checkpoint.find(run), "reach", run_id, Lineage())
    loading.fetch("reach/1", home / "policy")
    words = ("play", home / "policy", "--robot", "arm", "--dry-run", "--episodes", "1")
    assert rrf(*words).err.count("warning") == 0
    nobody = {"champion": None, "previous": None, "checkpoint_digest": None}
    ledger = promotion.ledger_of("reach")
    changes.append(client, ledger, action="withdraw", version="1", reason="it hit me", **nobody)
    for policy in (home / "policy", "reach/1"):
        refused = rrf(words[0], policy, *words[2:])
        assert refused.code == 2
        assert "version 1 of 'reach' was withdrawn" in refused.err
        assert "it hit me; to use it all the same: --allow-withdrawn" in refused.err
    allowed = rrf(*words, "--allow-withdrawn")
    assert allowed.code == 0
    assert "it hit me; it is used all the same" in allowed.err
    assert "--allow-withdrawn: only with --robot" in rrf("play", run, "--allow-withdrawn").err


def test_a_policy_for_another_robot_is_refused(rrf, home, arm, run):
    change(arm, robot=read_yaml(arm)["robot"] | {"views": ["side"]})
    said = rrf("play", run, "--robot", "arm")
    assert "sees through 'front', but the robot has no such camera; known: side" in said.err


def test_a_broken_robot_file_names_its_key(rrf, arm, run):
    change(arm, workspace=read_yaml(arm)["workspace"] | {"point": "tp"})
    assert "no site or body 'tp'; did you mean 'tip'" in rrf("record", "--robot", "arm").err
    change(arm, on_limits="hold")
    assert (
        "has no field 'on_limits'; did you mean 'on_limit'" in rrf("record", "--robot", "arm").err
    )
