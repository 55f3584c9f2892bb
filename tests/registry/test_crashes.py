"""kill -9 at every write of a registry operation, and promotions that race: one end state."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.mlflow_store import store
from rrf.registry import promotion, registration
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import make_checkpoint, make_evaluation

NAME = "policy"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def three_versions(home):
    """Versions 1 to 3 registered, checkpoint 9 not yet; returns their evaluations."""
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    (home / "run_id").write_text(run_id)
    (home / "lineage.json").write_text(json.dumps(collect_lineage("demo").to_dict()))
    reports = {}
    for seed in (1, 2, 3, 9):
        checkpoint = make_checkpoint(home / f"checkpoints/{seed}", seed)
        evaluation = home / f"checkpoints/evaluation-{seed}"
        reports[seed] = make_evaluation(evaluation, checkpoint, 18)
        if seed != 9:
            lineage, gate = collect_lineage("demo"), home / "configs/gates/g.yaml"
            registration.register(checkpoint, NAME, run_id, lineage, evaluation, gate=gate)
    return reports


def run(*arguments: str) -> list | dict:
    command = [sys.executable, "-m", "tests.registry.processes", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def champions(state: dict) -> list[str | None]:
    """The champion after each change of champion or gate."""
    arrivals = ("register", "evaluate")
    return [e["champion"] for e in state["ledger"] if e["action"] not in arrivals]


def killed_everywhere(home, operation: str, stride: int = 1) -> list[dict]:
    snapshot = home / "snapshot"
    shutil.copytree(home / ".rrf", snapshot)
    states = run("kill", operation, str(snapshot), str(stride))
    assert isinstance(states, list)
    return states


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_promotion_killed_at_any_write_and_run_again_ends_as_if_undisturbed(
    home, three_versions, stride
):
    promotion.promote(NAME, "1")
    undisturbed, *others = killed_everywhere(home, "promote", stride)
    assert undisturbed["champion_alias"] == 2
    aliases = {v["version"]: v["aliases"] for v in undisturbed["versions"]}
    assert aliases == {"3": ["candidate"], "2": ["champion"], "1": ["previous"]}
    assert champions(undisturbed) == [None, "1", "2"]
    # the claim, three tags, entry, head, two aliases, and the claim again
    assert len(others) >= 9 // stride
    assert all(state == undisturbed for state in others)


@pytest.mark.slow
def test_a_rollback_killed_at_any_write_and_run_again_rolls_back_once(home, three_versions):
    promotion.promote(NAME, "2")
    promotion.promote(NAME, "1")
    undisturbed, *others = killed_everywhere(home, "rollback")
    assert champions(undisturbed) == [None, "2", "1", "2"]
    assert undisturbed["champion_alias"] == 2
    assert len(others) >= 4
    assert all(state == undisturbed for state in others)


@pytest.mark.slow
def test_a_registration_killed_at_any_write_and_run_again_makes_one_version(home, three_versions):
    undisturbed, *others = killed_everywhere(home, "register")
    assert [v["version"] for v in undisturbed["versions"]] == ["4", "3", "2", "1"]
    assert undisturbed["versions"][0]["aliases"] == ["candidate"]
    assert len(others) >= 10
    assert all(state == undisturbed for state in others)


@pytest.mark.slow
def test_promotions_that_race_come_one_after_the_other(three_versions):
    result = run("race", "3")
    assert isinstance(result, dict)
    assert result["codes"] == [0, 0, 0]
    promotions = [e for e in result["state"]["ledger"] if e["action"] == "promote"]
    assert sorted(entry["champion"] for entry in promotions) == ["1", "2", "3"]
    # Each was compared with the champion before it.
    before = [None, *(entry["champion"] for entry in promotions[:-1])]
    assert [entry["previous"] for entry in promotions] == before
    champions = [v["version"] for v in result["state"]["versions"] if "champion" in v["aliases"]]
    assert champions == [promotions[-1]["champion"]]
