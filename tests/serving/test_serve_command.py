"""`rrf serve` as a process of its own."""

import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from rrf.client import PolicyClient
from rrf.lineage import Lineage
from rrf.policies.control.configs import MemoryCfg
from rrf.runners.checkpoints.deployed_control import DeployedControl
from rrf.runners.checkpoints.deployed_vla import DeployedVLA
from rrf.serving.configs import ServingCfg
from rrf.serving.model import ServedPolicy, serve_checkpoint
from rrf.serving.requests import RequestReader
from tests.evaluation.control.control_checkpoints import write_control_checkpoint
from tests.serving.conftest import observation


def command(*words):
    return [sys.executable, "-m", "rrf.cli", "serve", *map(str, words)]


def test_a_served_checkpoint_acts_as_in_process_and_sigterm_ends_it_with_exit_code_0(
    checkpoint, tmp_path
):
    (tmp_path / "token").write_text("a-token-of-enough-characters")
    words = (checkpoint.parent, "drain_s=5", "--port", 0, "--token-file", tmp_path / "token")
    process = subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout.readline().startswith("loading ")  # at once
        first = process.stdout.readline()
        found = re.search(r"at (ws://127\.0\.0\.1:\d+) \(warmed up in", first)
        assert found, first + process.stdout.read()
        with PolicyClient(found[1], "a-token-of-enough-characters") as client:
            actions = client.infer(observation())
        batch = {name: np.array(value)[None] for name, value in observation().items()}
        expected = DeployedVLA(checkpoint).answer(batch, {})[0]
        np.testing.assert_allclose(actions, expected, atol=1e-5)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(10) == 0
        assert "goodbye" in rest
        assert "a-token-of" not in first + rest
    finally:
        watchdog.cancel()
        process.kill()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere",), "'nowhere' is neither a checkpoint"),
        (("nowhere", "--host", "0.0.0.0"), "--insecure"),
        (("nowhere", "max_conections=3"), "did you mean 'max_connections'"),
        (("nowhere", "--rename", "a"), "expected KEY=INPUT"),
        (("nowhere", "--max-batch", "0"), "max_batch is 0"),
        (("nowhere", "--token-file", "gone"), "gone"),
    ],
    ids=range(6),
)
def test_a_users_mistake_is_an_error_before_anything_is_served(words, why, tmp_path, monkeypatch):
    import typer.testing

    from rrf.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RRF_SERVE_TOKEN", raising=False)
    result = typer.testing.CliRunner().invoke(app, ["serve", *words])
    assert why in str(result.exception), result.output


def test_a_port_that_is_taken_and_a_device_that_is_not_there_are_named(checkpoint, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cfg = ServingCfg(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="address already in use"):
            serve_checkpoint(checkpoint, "compact", cfg, None, "cpu", print)
    with pytest.raises(ValueError, match="compact cannot run on 'nowhere'"):
        serve_checkpoint(checkpoint, "compact", ServingCfg(port=0), None, "nowhere", print)


def test_a_policy_with_a_memory_is_not_shared(tmp_path):
    path = write_control_checkpoint(tmp_path, "Pendulum-v1", Lineage(), MemoryCfg())
    with pytest.raises(ValueError, match="keeps no memory"):
        ServedPolicy(path, "recurrent")


def test_a_state_based_policy_is_served_with_single_actions(tmp_path, serving):
    path = write_control_checkpoint(tmp_path, "Pendulum-v1", Lineage())
    policy = ServedPolicy(path, "pendulum")
    policy.warm_up(RequestReader(policy.signature).examples(2))
    states = np.array([0.6, 0.8, -0.3], np.float32)
    expected = DeployedControl(path).answer({"policy": states[None]}, {})[0]
    with PolicyClient(serving(policy).url) as client:
        assert client.metadata["actions"] == {"dtype": "float32", "shape": [1]}
        assert client.metadata["can_resume"] is False
        assert np.array_equal(client.infer({"policy": states}), expected)
    assert abs(expected[0]) > 1e-3
