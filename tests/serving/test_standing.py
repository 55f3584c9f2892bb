"""A policy that is withdrawn while robots use it."""

import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from rrf.client import PolicyClient, PolicyRevokedError, RequestRefusedError
from rrf.registry import promotion, registration
from rrf.registry.lineage_sources import collect_lineage
from rrf.registry.standing import standing_of
from rrf.serving.standing import Standing
from tests.registry.conftest import (  # noqa: F401 (fixtures)
    NAME,
    add,
    client,
    empty_store,
    home,
    make_evaluation,
    run_id,
)
from tests.serving.conftest import Scripted, observation, request
from tests.waiting import wait_for

WHY = "version 3 of 'arm' was withdrawn: drops what it holds"


class Registry:
    """What a registry says about the version, and how often it was asked."""

    def __init__(self):
        self.says, self.num_asked, self.error = "", 0, None

    def __call__(self, name, version):
        assert (name, version) == ("arm", "3")
        self.num_asked += 1
        if self.error:
            raise self.error
        return self.says

    def wait(self):
        """Until it has been asked once more from now on, and the answer was taken."""
        before = self.num_asked
        wait_for(lambda: self.num_asked > before + 1, 30, lambda: "the registry was not asked")


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def served(serving, registry):
    def start(**settings):
        return serving(Scripted(), standing=Standing("arm", "3", 0.01, registry), **settings)

    return start


def test_every_answer_tells_it_and_the_client_finishes_its_episode(served, registry):
    with PolicyClient(served().url) as robot:
        robot.begin_episode()
        assert robot.request(request(1, 2, 3)).revoked == ""
        registry.says = WHY
        registry.wait()
        answer = robot.request(request(1, 2, 3))
        assert answer.revoked == robot.revoked == WHY
        np.testing.assert_array_equal(answer.actions[0], [1, 2, 3])
        with pytest.raises(PolicyRevokedError, match="drops what it holds"):
            robot.begin_episode()
        with pytest.raises(PolicyRevokedError):  # also for who does not heed it
            robot.infer(request(1, 2, 3))


def test_a_client_may_stop_at_once(served, registry):
    registry.says = WHY
    with PolicyClient(served().url, on_revoked="stop") as robot:
        for _ in range(2):
            with pytest.raises(PolicyRevokedError, match="drops what it holds"):
                robot.infer(request(1, 2, 3))


def test_a_fallback_acts_instead(served, registry):
    def hold(observation):
        assert observation.keys() == request(1, 2, 3).keys()
        return np.zeros((2, 3))

    with PolicyClient(served().url, on_revoked="stop", fallback=hold) as robot:
        assert robot.infer(request(1, 2, 3)).any()
        registry.says = WHY
        registry.wait()
        for _ in range(2):
            answer = robot.request(request(1, 2, 3))
            assert not answer.actions.any()
            assert answer.revoked == WHY
    with PolicyClient(served().url, fallback=hold) as robot:
        assert robot.infer(request(1, 2, 3)).any()  # the episode is finished with the policy
        robot.begin_episode()
        assert not robot.infer(request(1, 2, 3)).any()
        assert not robot.resume(request(1, 2, 3), np.ones((2, 3)), 1).any()


def test_a_server_may_refuse_and_answers_again_when_the_version_is_allowed(served, registry):
    server = served(on_revoked="refuse")
    with PolicyClient(server.url) as robot:
        registry.says = WHY
        registry.wait()
        with pytest.raises(RequestRefusedError, match="was withdrawn: drops what it holds"):
            robot.infer(request(1, 2, 3))
        assert server.errors("revoked") == 1
        registry.says = ""
        registry.wait()
        assert robot.infer(request(1, 2, 3)).any()


@pytest.mark.parametrize("error", [OSError("no store"), KeyError("what nobody expects")])
def test_while_the_registry_is_away_what_was_known_holds(served, registry, error, caplog):
    with PolicyClient(served().url) as robot:
        registry.error = error
        registry.wait()
        assert robot.request(request(1, 2, 3)).revoked == ""
        registry.error, registry.says = None, WHY
        registry.wait()
        registry.error = error
        registry.wait()
        assert robot.request(request(1, 2, 3)).revoked == WHY
    warned = [record for record in caplog.records if str(error) in record.getMessage()]
    assert len(warned) == 2  # once each time, not at every question


def test_the_ledger_says_what_is_not_allowed(add):  # noqa: F811
    add(1)
    add(2)
    for version in ("1", "2"):
        promotion.promote(NAME, version)
    assert standing_of(NAME, "2") == ""
    promotion.rollback(NAME, "it jitters")
    rolled_back = standing_of(NAME, "2")
    assert rolled_back.startswith("version 2 of 'policy' was rolled back at 20")
    assert rolled_back.endswith(": it jitters")
    assert standing_of(NAME, "1") == ""
    promotion.withdraw(NAME, "drops")
    assert "version 1 of 'policy' was withdrawn at 20" in standing_of(NAME, "1")
    promotion.promote(NAME, "2", "mended")
    assert standing_of(NAME, "2") == ""
    with pytest.raises(ValueError, match="there is no model 'other'"):
        standing_of("other", "1")


def test_what_a_client_does_is_one_of_two(served):
    with pytest.raises(ValueError, match="on_revoked is 'ignore', allowed: 'finish' or 'stop'"):
        PolicyClient(served().url, on_revoked="ignore")


@pytest.mark.slow
def test_a_withdrawal_reaches_the_clients_of_a_server_within_seconds(
    home,  # noqa: F811
    run_id,  # noqa: F811
    checkpoint,
):
    """By the commands that people type, each a process of its own."""
    folder = home / "evaluation"
    make_evaluation(folder, checkpoint, 18)
    gate = home / "configs/gates/g.yaml"
    registration.register(checkpoint, NAME, run_id, collect_lineage("demo"), folder, gate=gate)
    promotion.promote(NAME, "1")
    rrf = [sys.executable, "-m", "rrf.cli"]
    server = subprocess.Popen(
        [*rrf, "serve", f"{NAME}@champion", "registry_s=0.5", "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    watchdog = threading.Timer(120, server.kill)
    watchdog.start()
    try:
        while "warmed up" not in (line := server.stdout.readline()):
            assert line, "the server ended"
        (url,) = re.findall(r"ws://127\.0\.0\.1:\d+", line)
        with PolicyClient(url) as robot:
            assert robot.request(observation()).revoked == ""
            words = ["models", "withdraw", NAME, "--reason", "drops what it holds"]
            subprocess.run([*rrf, *words], check=True, capture_output=True)
            wait_for(lambda: robot.request(observation()).revoked, 30, lambda: "no client was told")
            assert "was withdrawn at" in robot.revoked
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()
