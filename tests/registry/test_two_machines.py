"""Two workspaces change one model at once, on SQLite and on PostgreSQL; some are killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.mlflow_store import store
from rrf.registry import changes, listing, versions
from rrf.registry.ledger import Ledger
from tests import postgres
from tests.registry.conftest import new_run, register

NAME = "policy"
ROOT = Path(__file__).parents[2]
NUM_VERSIONS = {"sqlite": 4, "postgresql": 6}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def shared_store(request, home, monkeypatch):
    """A store that is named by its address, as two machines would name it."""
    if request.param == "sqlite":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/.rrf/mlflow.db")
        yield request.param
        return
    with postgres.server() as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("RRF_ARTIFACT_ROOT", f"{home}/artifacts")
        yield request.param


@pytest.fixture
def model(home, shared_store):
    """A model with versions that all pass its gate."""
    client = store.connect()
    run_id = new_run(client)
    for seed in range(1, NUM_VERSIONS[shared_store] + 1):
        register(home, NAME, run_id, seed, solved=20)
    return client


def start(home: Path, workspace: str, *words: str) -> subprocess.Popen:
    """Change the model from another workspace; see `tests.registry.two_machines`."""
    other = home / workspace
    (other / ".rrf").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.registry.two_machines", NAME, *words]
    env = os.environ | {"RRF_HOME": str(other), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome(process: subprocess.Popen) -> dict:
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(out)


def check_sound(client, home) -> Ledger:
    """The ledger is whole, the aliases agree with it, and no claim is left."""
    assert listing.problems(NAME) == []
    assert listing.models() == [NAME]
    left = [m.name for m in client.search_registered_models() if changes.CLAIM in m.tags]
    assert left == []
    return changes.agreed(client, NAME)


@pytest.mark.slow
def test_of_two_workspaces_that_change_a_model_both_are_heard_and_nothing_is_lost(
    home, shared_store, model
):
    numbers = [str(number + 1) for number in range(NUM_VERSIONS[shared_store])]
    halves = (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
    machines = [start(home, f"machine-{n}", *words) for n, words in enumerate(halves)]
    told = [change for machine in machines for change in outcome(machine)["written"]]
    entries = check_sound(model, home).entries
    # Every change that a machine was told is in the ledger exactly once, and nothing else is.
    arrivals = ("gate", "register")
    assert sorted(told) == sorted(entry.hash for entry in entries if entry.action not in arrivals)
    assert [entry.index for entry in entries] == list(range(1, len(entries) + 1))
    assert len(told) >= len(numbers)


@pytest.mark.slow
def test_a_machine_killed_in_the_middle_of_a_change_blocks_nobody(home, model):
    for write in range(1, 7):
        killed = start(home, "killed", "--kill", str(write), "1", "2")  # six writes and more
        killed.communicate(timeout=600)
        assert killed.returncode == -9
        outcome(start(home, "living", "2"))
        champion = check_sound(model, home).champion
        assert champion in ("1", "2", None)
        if champion:
            assert versions.find(f"{NAME}@champion").version == champion
