"""`rrf train --task ID --algorithm iql dataset=NAME`: reused, evaluated, with its lineage."""

import json

import numpy as np
import pytest

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode, Schema, Vector
from rrf.runners.checkpoints.deployable import load_lineage
from tests.cli.conftest import TINY_PPO
from tests.cli.test_bad_input import one_line

TINY = (
    *("trackers=[]", "max_iterations=2", "updates_per_iteration=20", "save_interval=1"),
    *("algorithm.batch_size=16", "dataset=swings"),
)
SCHEMA = Schema(
    20, (0, 0), (), Vector(("cos", "sin", "velocity"), "1, 1, rad/s"), Vector(("torque",), "N m"),
    has_success=False, has_terminated=True,
)  # fmt: skip


@pytest.fixture
def swings(home):
    """Random states and actions in the shape of Pendulum-v1's, as a published dataset."""
    rng = np.random.default_rng(0)

    def episode(number: int) -> Episode:
        return Episode(
            images={},
            state=rng.normal(size=(20, 3)).astype(np.float32),
            action=rng.uniform(-2, 2, (20, 1)).astype(np.float32),
            instruction="swing up",
            source=f"swings:{number}",
            reward=rng.normal(size=20).astype(np.float32),
            terminated=np.zeros(20, bool),
        )

    write_dataset(home / "datasets/swings", SCHEMA, map(episode, range(6)))


@pytest.mark.parametrize("algorithm", ["iql", "cql", "td3-bc", "bc"])
def test_a_dataset_is_learned_from(rrf, swings, algorithm):
    words = ("train", "--task", "Pendulum-v1", "--algorithm", algorithm, *TINY)
    said = rrf(*words)
    assert said.lines[-2].startswith(f"trained pendulum-{algorithm}: 40 gradient steps, loss/")
    assert rrf(*words).checkpoint == said.checkpoint
    lineage = load_lineage(said.checkpoint)
    assert lineage.dataset_names == ["swings"]
    assert lineage.environment.task == "Pendulum-v1"


def test_without_a_dataset_nothing_is_trained(rrf, home):
    said = rrf("train", "--task", "Hopper-v5", "--algorithm", "iql", "trackers=[]")
    assert "dataset is not given; name a published dataset: dataset=NAME" in one_line(said)


def test_a_dataset_of_another_task_is_refused(rrf, swings):
    said = rrf("train", "--task", "Hopper-v5", "--algorithm", "iql", *TINY)
    assert "swings has 3 state dimensions, but Hopper-v5 has 11" in one_line(said)


def test_the_return_of_a_policy_is_estimated_from_a_dataset(rrf, home, swings, monkeypatch):
    monkeypatch.setattr("rrf.cli.recorded_evaluation._FITTED_Q_UPDATES", 20)
    path = rrf("train", "--task", "Pendulum-v1", "--algorithm", "iql", *TINY).checkpoint
    said = rrf("eval", str(path), "--fitted-q", "swings", "--out", "estimate")
    assert said.code == 0, said.err
    assert said.out.splitlines()[0].endswith("from swings in estimate: 20 updates, some minutes")
    facts = json.loads((home / "estimate/fitted_q.json").read_text())
    assert len(facts["values"]) == 5
    assert facts["gamma"] == 0.95
    assert "an estimate for a reader, which gates do not use" in said.out
    refused = rrf("eval", str(path), "--fitted-q", "swings", "--register", "pendulum")
    assert "--fitted-q runs no simulation; leave out --protocol" in one_line(refused)
    other = rrf("train", *TINY_PPO).checkpoint
    said = rrf("eval", str(other), "--fitted-q", "swings")
    assert "swings has 3 state dimensions, but the policy was trained with 4" in one_line(said)
