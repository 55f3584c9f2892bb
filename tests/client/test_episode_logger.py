"""Logs of a robot's episodes: what a kill, a full disk and a slow disk leave of them."""

import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from rrf import atomic
from rrf.client import EpisodeLogger, PolicyClient, PolicyRevokedError
from rrf.client.messages import REVOKED
from rrf.data import episode_log
from rrf.data.images import decode_image
from tests.client.logging import POLICY, log_episode, logged, seen
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


def test_what_was_logged_is_read_again_exactly(tmp_path):
    with EpisodeLogger(tmp_path, "arm-1") as log:
        log.begin("drawer-open", 10, policy=POLICY, start={"place": "left"}, state_names=["x", "y"])
        for step in range(4):
            log.answered(0.02) if step % 2 == 0 else None
            by = "operator" if step == 2 else None
            log.step(seen(step), np.array([step, 1]), by=by, progress=step / 4)
        log.event("guard", reason="too fast")
        log.end("failure", "time", score=0.5)
    (folder,) = tmp_path.iterdir()
    about = episode_log.check_episode(folder)["summary"]
    assert about | {"steps": 4, "operator_steps": 1, "interventions": 1} == about
    assert about | {"outcome": "failure", "how": "time", "score": 0.5, "progress": 0.75} == about
    assert about | {"events": {"guard": 1}, "first_event": 4, "robot": "arm-1"} == about
    assert about["latency_ms"] == {"median": 20.0, "max": 20.0}
    assert about["policy"] == POLICY
    assert about["clock_jump_s"] == pytest.approx(0, abs=0.05)
    episode = episode_log.read_episode(folder)
    assert episode.by.tolist() == ["policy", "policy", "operator", "policy"]
    assert set(episode.observations) == {"observation.images.front", "observation.state"}
    for step in range(4):
        image = decode_image(episode.observations["observation.images.front"].blobs[step])
        np.testing.assert_array_equal(image, seen(step)["observation.images.front"])
        state = episode.observations["observation.state"][step]
        np.testing.assert_array_equal(state, seen(step)["observation.state"])
    np.testing.assert_array_equal(episode.action, [[0, 1], [1, 1], [2, 1], [3, 1]])
    assert episode.begin["start"] == {"place": "left"}
    assert episode.begin["state_names"] == ["x", "y"]


def test_a_buffer_that_the_robot_uses_again_is_logged_as_it_was(tmp_path):
    state, action = np.zeros(2, np.float32), np.zeros(1, np.float32)
    with EpisodeLogger(tmp_path, "arm-1") as log:
        name = log.begin("a", 10)
        for step in range(100):
            state[:], action[:] = step, step
            log.step({"observation.state": state}, action)
        log.end("success")
    episode = episode_log.read_episode(tmp_path / name)
    np.testing.assert_array_equal(episode.observations["observation.state"][:, 0], np.arange(100))
    np.testing.assert_array_equal(episode.action[:, 0], np.arange(100))


def test_a_long_episode_is_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_log, "CHUNK_BYTES", 2_000)
    folder = logged(tmp_path, steps=40)
    assert len(episode_log.chunk_files(folder)) > 3
    assert episode_log.check_episode(folder)["summary"]["steps"] == 40


def killed_while_logging(folder):
    """A process that logs without end, killed while it does."""
    program = f"""
        import itertools
        import sys
        from rrf.client import EpisodeLogger
        from tests.client.logging import POLICY, seen

        log = EpisodeLogger({str(folder)!r}, "arm-1")
        log.begin("drawer-open", 10, policy=POLICY)
        for step in itertools.count():
            log.step(seen(step, size=64), [step, 0])
            log.flush()
            print(step, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    return int(rest[-1]) if rest else 20


def test_a_killed_process_leaves_every_step_that_was_written(tmp_path):
    last = killed_while_logging(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert not (folder / atomic.MANIFEST).exists()
    with (folder / "000000.rrflog").open("ab") as file:
        file.write(b"\x40\0\0\0half a record")
    about = episode_log.close_left(folder)["summary"]
    assert about["steps"] in (last + 1, last + 2)  # it may have been killed before it said so
    assert about | {"finished": False, "outcome": "unknown", "how": "unfinished"} == about
    assert episode_log.check_episode(folder)["summary"] == about
    assert episode_log.close_left(folder)["summary"] == about


def test_damage_in_the_middle_is_said_and_nothing_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_log, "CHUNK_BYTES", 2_000)
    folder = logged(tmp_path, steps=40)
    (folder / atomic.MANIFEST).unlink()
    path = folder / "000001.rrflog"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"000001.rrflog is damaged at byte \d+, after step \d+"):
        episode_log.close_left(folder)
    assert path.read_bytes() == content


def test_a_process_that_was_killed_before_its_first_step_leaves_nothing(tmp_path):
    folder = logged(tmp_path, steps=0, outcome="unknown")
    (folder / atomic.MANIFEST).unlink()
    assert episode_log.close_left(folder) is None
    assert not folder.exists()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
def test_a_full_disk_stops_logging_with_one_line_and_the_robot_goes_on(tmp_path):
    program = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from rrf.client import EpisodeLogger
        from rrf.data import episode_log
        from tests.client.logging import log_episode, seen

        lines = []
        with EpisodeLogger("{tmp_path}/disk/logs", "arm-1", say=lines.append) as log:
            first = log_episode(log, steps=10)
            log.flush()
            full = log_episode(log, steps=0, outcome=None)
            for step in range(200):
                log.step(seen(step, size=64), [0, 0])
                log.flush()
            assert log.problem
            log.end("success")
            again = log_episode(log, steps=50, first=300)
            log.flush()
        print(len(lines), lines[0])
        logs = Path("{tmp_path}/disk/logs")
        print(episode_log.check_episode(logs / first)["summary"]["steps"])
        Path("{tmp_path}/disk/room").unlink()
        left = episode_log.close_left(logs / full)["summary"]
        print(left["steps"], left["finished"])
    """
    (tmp_path / "disk").mkdir()
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    shell = f"""
        mount -t tmpfs -o size=1m none {tmp_path}/disk || exit 77
        head -c 16000 /dev/zero > {tmp_path}/disk/room
        exec {sys.executable} {script}
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    said, first, left = done.stdout.splitlines()
    assert said.startswith("1 arm-1: this episode is logged no further: ")
    assert "No space left" in said
    assert said.endswith("; the robot goes on")
    assert first == "10"
    steps, finished = left.split()
    assert 20 < int(steps) < 200
    assert finished == "False"


def test_pictures_that_come_too_fast_end_the_log_of_their_episode_only(tmp_path):
    lines = []
    with EpisodeLogger(tmp_path, "arm-1", say=lines.append, max_waiting_bytes=100_000) as log:
        held = threading.Event()
        log._queue.put((_Held(held), 0))
        first = log_episode(log, steps=0, outcome=None)
        for step in range(20):
            log.step(seen(step, size=64), [0, 0])  # 12 kB each
        log.end("success")
        held.set()
        log.flush()
        second = log_episode(log, steps=3)
    assert lines == [
        "arm-1: this episode is logged no further: pictures come faster than they can be written; "
        "the robot goes on"
    ]
    left = episode_log.close_left(tmp_path / first)["summary"]
    assert (left["steps"], left["finished"]) == (8, False)
    assert episode_log.check_episode(tmp_path / second)["summary"]["steps"] == 3


class _Held(threading.Event):
    """An item at which the writing thread waits."""

    def __init__(self, until):
        super().__init__()
        self._until = until

    def set(self):
        assert self._until.wait(120)
        super().set()


def test_wrong_calls_are_refused_before_anything_is_written(tmp_path):
    with EpisodeLogger(tmp_path, "arm-1") as log:
        with pytest.raises(ValueError, match="no episode was begun"):
            log.step({}, [0])
        with pytest.raises(ValueError, match=r"'solved', allowed: success, failure or unknown"):
            log.end("solved")
        with pytest.raises(ValueError, match="cannot carry this"):
            log.begin("a", 10, start={"scene": object()})
        with pytest.raises(ValueError, match="ndarray is not JSON"):
            log.begin("a", 10, start={"pose": np.zeros(3)})
        with pytest.raises(ValueError, match=r"'\.\./x' is no id"):
            log.begin("a", 10, episode="../x")
    assert list(tmp_path.iterdir()) == []


def test_an_episode_that_is_not_ended_ends_with_the_log_or_the_next_one(tmp_path):
    with EpisodeLogger(tmp_path, "arm-1") as log:
        first = log_episode(log, outcome=None)
        second = log_episode(log, outcome=None)
    hows = [
        episode_log.check_episode(tmp_path / name)["summary"]["how"] for name in (first, second)
    ]
    assert hows == ["another episode began", "the log was closed"]


class Server:
    """Answers like a policy server, without one."""

    def __init__(self, monkeypatch):
        self.answer = {"actions": np.ones((2, 2), np.float32)}
        monkeypatch.setattr(PolicyClient, "_connect", lambda client: None)
        monkeypatch.setattr(PolicyClient, "_exchange", lambda client, content: self.answer)


def client_with(log, **settings):
    client = PolicyClient("ws://127.0.0.1:1", log=log, **settings)
    client.metadata = {"policy": "arm-policy version 3", "digest": "d" * 64}
    return client


def test_a_client_tells_the_log_what_it_knows(tmp_path, monkeypatch):
    server = Server(monkeypatch)
    with EpisodeLogger(tmp_path, "arm-1") as log:
        client = client_with(log)
        client.begin_episode(task="drawer-open", fps=5, start={"index": 2})
        log.step(seen(0), client.infer(seen(0))[0])
        server.answer = {**server.answer, REVOKED: "it was withdrawn"}
        log.step(seen(1), client.infer(seen(1))[0])
        client.end_episode(True, "by hand")
        with pytest.raises(PolicyRevokedError):
            client.begin_episode(task="drawer-open", fps=5)
    (folder,) = tmp_path.iterdir()
    about = episode_log.check_episode(folder)["summary"]
    assert about["policy"]["version"] == "3"
    assert about["policy"]["digest"] == "d" * 64
    assert about | {"outcome": "success", "how": "by hand", "start": {"index": 2}} == about
    assert about | {"events": {"revoked": 1}, "fps": 5.0} == about
    assert about["latency_ms"]["max"] < 1000


def test_what_a_fallback_does_is_not_the_policys(tmp_path, monkeypatch):
    server = Server(monkeypatch)
    server.answer = {**server.answer, REVOKED: "it was withdrawn"}
    with EpisodeLogger(tmp_path, "arm-1") as log:
        client = client_with(log, on_revoked="stop", fallback=lambda seen: np.zeros((1, 2)))
        name = log.begin("a", 5)
        log.step(seen(0), client.infer(seen(0))[0])
        log.end("failure")
    assert episode_log.read_episode(tmp_path / name).by.tolist() == ["fallback"]


def test_the_id_of_a_server_that_no_folder_can_have_is_kept_beside_it(tmp_path, monkeypatch):
    server = Server(monkeypatch)
    server.answer = {"episode": {"id": "cell 3/run 4", "version": "4", "digest": "e" * 64}}
    with EpisodeLogger(tmp_path, "arm-1") as log:
        client = client_with(log)
        client.metadata["episodes"] = True
        client.begin_episode("cell 3/run 4", "a", fps=5)
        log.step(seen(0), [0, 0])
        log.end("success")
    (folder,) = tmp_path.iterdir()
    policy = episode_log.read_manifest(folder)["summary"]["policy"]
    assert policy | {"announced": "cell 3/run 4", "version": "4", "digest": "e" * 64} == policy


def test_the_files_are_written_while_the_episode_runs(tmp_path):
    with EpisodeLogger(tmp_path, "arm-1") as log:
        name = log_episode(log, steps=3, outcome=None)
        (path,) = wait_for(lambda: list((tmp_path / name).glob("*.rrflog")))
        log.flush()
        kinds = [record["kind"] for record, _ in episode_log.records_in(path)]
        assert kinds == ["begin", "step", "step", "step"]
        assert list((tmp_path / name).iterdir()) == [path]
