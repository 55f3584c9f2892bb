"""Systems 2 and 1 on a server, System 0 and the clock at the robot."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.client import PolicyClient, RequestRefusedError
from rrf.data.dataset.seen_images import NUM_COLORS, SeenImages
from rrf.data.schema import Observation
from rrf.envs.humanoid import scene
from rrf.envs.humanoid.command import COMMAND
from rrf.hierarchy.combination import combine, hierarchy_of
from rrf.hierarchy.play import check
from rrf.hierarchy.runtime import SystemDiedError
from rrf.hierarchy.served import Served
from rrf.policies.vla.psi0_configs import FastViewCfg
from rrf.runners.checkpoints import checkpoint
from rrf.serving.book import Book
from rrf.serving.configs import ServingCfg
from rrf.serving.drift import Drift
from rrf.serving.model import loaded
from tests.hierarchy.conftest import written_for_table
from tests.policies.vla.test_psi0 import FAST
from tests.serving.conftest import Scripted, serving  # noqa: F401 (a fixture)
from tests.waiting import wait_for

RRF = [sys.executable, "-m", "rrf.cli"]


def start(*words):
    return subprocess.Popen(
        [*RRF, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture(scope="module")
def serve():
    """Starts servers; each is its process, its url, and what it says of what it serves."""
    running = []

    def serve(path):
        process = start("serve", path, "--port", 0)
        running.append(process)
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        said = [process.stdout.readline(), process.stdout.readline(), process.stdout.readline()]
        watchdog.cancel()
        found = re.search(r"ws://127\.0\.0\.1:\d+", said[1])
        assert found, said
        return process, found[0], said[2]

    yield serve
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def combined(system0, tmp_path_factory):
    """It moves one wrist, so that its robot stands for a while."""
    upper = written_for_table(
        tmp_path_factory.mktemp("upper"),
        [signal for signal in COMMAND if signal.name == "left_wrist_roll_joint"],
        feature_dtype="float16",
        fast_view=FastViewCfg(encoder=FAST.encoder, image=FAST.image),
    )
    return combine(upper, system0, tmp_path_factory.mktemp("all") / "combined")


def test_the_systems_answer_apart_what_the_policy_answers(combined, serving):  # noqa: F811
    policy = checkpoint.load_policy(combined)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    state = rng.uniform(-1, 1, policy.cfg.state_dim).astype(np.float32)
    seen = {"observation.images.ego": image, "observation.state": state, "instruction": "go"}
    url = serving(loaded(combined, "all", ServingCfg(), "cpu")).url
    with PolicyClient(url, timeout_s=120) as client:
        features = client.infer({"system": 2, **seen})
        assert (features.shape, features.dtype) == (policy.feature_shape, np.float16)
        told = {"system": 1, **seen, "features": features}
        chunk = client.infer({**told, "feature_age_s": 0.0})
        assert np.allclose(chunk, client.infer(seen), atol=1e-5)
        assert not np.allclose(chunk, client.infer({**told, "feature_age_s": 0.9}), atol=1e-5)
        for wrong, why in (
            ({"system": 0}, "'system' is 0, allowed: 2 or 1"),
            ({"system": 1}, "'features' is missing"),
            ({**told, "features": features[:1], "feature_age_s": 0.0}, "expected float16"),
            ({**told, "feature_age_s": 5.0}, "features are 5 s old"),
            ({**told, "feature_age_s": -1.0}, "features are -1 s old"),
            ({**told, "running_chunk": chunk}, "leave one of both out"),
        ):
            with pytest.raises(RequestRefusedError, match=why):
                client.infer({**seen, **wrong})


def test_another_policy_than_the_robots_is_refused(
    combined,
    at_table,
    upper,
    serving,  # noqa: F811
):
    cfg = hierarchy_of(combined)
    policy = check(cfg, scene.JOINTS)
    url = serving(loaded(combined, "all", ServingCfg(), "cpu")).url
    another = cfg.system1.replace(policy=str(at_table))
    with pytest.raises(ValueError, match=r"is not system1\.policy"):
        Served(url, cfg.replace(system1=another), policy)
    both = cfg.replace(system1=another, system2=cfg.system2.replace(policy=str(at_table)))
    with pytest.raises(ValueError, match=r"serves all \(digest .*serve and play the same version"):
        Served(url, both, policy)


def test_a_server_that_comes_back_with_another_policy_is_a_dead_one(
    combined,
    at_table,
    serving,  # noqa: F811
):
    cfg = hierarchy_of(combined).replace(max_wait_s=240.0)
    first = serving(loaded(combined, "all", ServingCfg(), "cpu"))
    served = Served(first.url, cfg, check(cfg, scene.JOINTS))
    image = np.zeros((1, 64, 64, 3), np.uint8)
    seen = Observation({"ego": image}, np.zeros((1, 129), np.float32), ["go"])

    def asked():
        served.system2.ask(0, seen)
        assert served.system2.is_busy
        answer = wait_for(lambda: [value] if (value := served.system2.answer(0)) is not None else 0)
        return answer[0]

    assert asked().shape == (1, 3, 8)
    first.stop()
    assert first.stopped(60)
    serving(loaded(at_table, "other", ServingCfg(), "cpu"), port=first.port)
    with pytest.raises(SystemDiedError, match=r"System 2 is gone: .* serves other \(digest"):
        asked()
    served.end(is_solved=False)
    served.close()


def test_what_the_two_systems_see_of_an_episode_is_watched_as_one(
    combined,
    serving,  # noqa: F811
    tmp_path,
    caplog,
):
    """System 2 sees a white room in every episode, where the training's was black; System 1 sees a
    black one, and a state of the training. So half of the images are outside."""
    camera = SeenImages(np.zeros(NUM_COLORS), np.eye(NUM_COLORS), limit=1.0)
    player = loaded(combined, "all", ServingCfg(), "cpu")
    assert len(player.drift.names) == 129  # the states of its checkpoint, which has no cameras
    player.drift = Drift(-np.ones(129), np.ones(129), {"observation.images.ego": camera})
    book = Book(tmp_path / "book.sqlite")
    running = serving(player, book=book)
    cfg = hierarchy_of(combined).replace(max_wait_s=240.0)
    state, features = np.zeros((1, 129), np.float32), np.zeros((1, 3, 8), np.float16)
    for _ in range(5):
        served = Served(running.url, cfg, check(cfg, scene.JOINTS))
        for system, told, grey in (
            (served.system2, (), 255),
            (served.system1, (features, 0.0), 0),
        ):
            images = {"ego": np.full((1, 64, 64, 3), grey, np.uint8)}
            system.ask(0, *told, Observation(images, state, ["go"]))
            assert wait_for(lambda asked=system: asked.answer(0) is not None)
        served.end(is_solved=True)
        served.close()
    book.close()
    said = "all sees what it was not trained on: images of ego"
    assert caplog.text.count(said) == 1
    assert player.drift.log_evidence[-1] == pytest.approx(10.0639, abs=1e-4)  # five times a half
    assert (player.drift.log_evidence[:-1] < 0).all()
    assert 'rrf_drift{dimension="observation.images.ego"' in running.server.metrics.text()


def test_a_policy_that_has_no_parts_is_refused(combined, serving):  # noqa: F811
    cfg = hierarchy_of(combined)
    with pytest.raises(ValueError, match="serves scripted, whose Systems 2 and 1 cannot be asked"):
        Served(serving(Scripted()).url, cfg, check(cfg, scene.JOINTS))


@pytest.mark.slow
def test_it_is_played_with_system_0_here_and_systems_2_and_1_there(combined, serve, tmp_path):
    _, url, said = serve(combined)
    assert "what is served are its Systems 2 and 1; its System 0 and the clock run at" in said
    assert f"rrf play COMBINATION --task TASK --server {url}" in said
    log, video = tmp_path / "log.jsonl", tmp_path / "walk.mp4"
    words = ["play", combined, "--task", "pick-red-cube", "--seconds", 2, "--server", url]
    words += ["--log", log, "--video", video]
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert "100 ticks" in done.output
    assert f"Systems 2 and 1 at {url}" in done.output
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["event"] for event in events[:3]] == ["begin", "processes", "server"]
    assert set(events[1]) == {"time", "event", "system0"}
    assert video.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_killed_or_hangs_ends_in_a_safe_stop(combined, serve, tmp_path, how):
    process, url, _ = serve(combined)
    log = tmp_path / "log.jsonl"

    def events() -> dict[str, dict]:
        lines = log.read_text().splitlines() if log.exists() else []
        return {event["event"]: event for event in map(json.loads, lines)}

    words = ["play", combined, "--task", "pick-red-cube", "--seconds", 8, "--server", url]
    playing = start(*words, "--log", log)
    try:
        wait_for(lambda: events().get("server"))
        os.kill(process.pid, how)
        said, _ = playing.communicate(timeout=300)
    finally:
        playing.kill()
    reason = events()["stop"]["reason"]
    assert re.search(r"System [12] is gone: |features of System 2 are|has sent nothing", reason)
    assert playing.returncode == 0
    assert "400 ticks" in said  # the clock went on, and the robot stood
    assert "stopped at" in said
