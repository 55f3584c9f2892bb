"""What was written on 2026-11-24, before classes and files moved, is still read: checkpoints, run
directories, evaluations, verdicts and a registry; and nothing is known by another digest.

`2026-11-24/` was made by commit ddb0357 with tiny policies: `rrf train` of compact-vla-one-demo
(runs/sft), metaworld-ppo-compact (runs/rl), pendulum-ppo and pendulum-sac, each with the checkpoint
of its middle and of its end; `rrf eval` and `rrf models register` of two of them, and a promotion.
In the store {home} stands for the repository. digests.json holds what protocols, gates,
runs and environments of the presets were known by.
"""

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

import rrf
from rrf import atomic
from rrf.cli.dataset_training import run_inputs
from rrf.cli.trainings import training_of
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode, Schema, Vector
from rrf.data.stats import norm_stats
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.protocols.files import load_protocol, parse_protocol
from rrf.evaluation.results import Evaluation
from rrf.presets import PRESETS, resolve
from rrf.registry import loading, promotion, versions
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployable import CONTROL, deployable_digest, kind_of
from rrf.runners.checkpoints.deployed import deployed_class
from rrf.runners.checkpoints.deployed_control import DeployedControl
from rrf.runners.configs import RunnerCfg

ROOT = Path(__file__).parents[2]
SAVED = Path(__file__).parent / "2026-11-24"
DIGESTS = json.loads((SAVED / "digests.json").read_text())
PROTOCOLS, GATES = DIGESTS["protocols"], DIGESTS["gates"]
RUNS = ("sft", "rl", "ppo", "sac")
CHAMPION, CANDIDATE = "pendulum-tiny", "metaworld-tiny"
SEEN = {
    "observation.images.corner2": np.zeros((1, 64, 64, 3), np.uint8),
    "observation.state": np.zeros((1, 4), np.float32),
    "instruction": np.array(["open the drawer"]),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository as it was left."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAVED / "runs", tmp_path / ".rrf/runs")
    shutil.copytree(SAVED / "evaluations", tmp_path / ".rrf/evaluations")
    shutil.copytree(SAVED / "configs", tmp_path / "configs")
    shutil.copytree(SAVED / "store/mlartifacts", tmp_path / ".rrf/mlartifacts")
    for file in tmp_path.glob(".rrf/mlartifacts/*/models/*/artifacts/MLmodel"):
        file.write_text(file.read_text().replace("{home}", str(tmp_path)))
    dump = gzip.decompress((SAVED / "store/mlflow.sql.gz").read_bytes()).decode()
    store = sqlite3.connect(tmp_path / ".rrf/mlflow.db")
    store.executescript(dump.replace("{home}", str(tmp_path)))
    store.close()
    return tmp_path


def test_protocols_and_gates_are_known_by_the_same_digests():
    folder = ROOT / "configs"
    found = {name: load_protocol(folder / f"protocols/{name}.yaml").hash for name in PROTOCOLS}
    assert found == PROTOCOLS
    gates = {name: load_gate(folder / f"gates/{name}.yaml") for name in GATES}
    # tiny.yaml tolerates more since gates look at each task; without that it is the gate it was.
    gates["tiny"] = gates["tiny"].replace(champion_margin=0.9, task_margin=0.3)
    # These have one more look since attempts share the error.
    for name in ("cartpole", "g1-flat", "g1-rough", "go1-rough", "locomotion"):
        gates[name] = gates[name].replace(looks=gates[name].looks[:-1])
    assert {name: gate.hash for name, gate in gates.items()} == GATES


@pytest.mark.parametrize("name", DIGESTS["runs"])
def test_a_preset_is_the_run_it_was(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert name in PRESETS
    cfg = resolve(name)
    if name in DIGESTS["environments"]:
        lineage, inputs = training_of(cfg).depends_on(None, None)
        assert lineage["environment"]["config_digest"] == DIGESTS["environments"][name]
    else:
        inputs = run_inputs(cfg.to_dict(), None, "", None)
    assert inputs["config"] == DIGESTS["runs"][name]


@pytest.mark.parametrize("run", RUNS)
def test_every_checkpoint_loads_and_acts(run):
    result = json.loads((SAVED / "runs" / run / "result.json").read_text())
    steps = checkpoint.steps(SAVED / "runs" / run)
    assert len(steps) == 2
    assert deployable_digest(steps[result["steps"]]) == result["checkpoint_digest"]
    for path in steps.values():
        cfg = RunnerCfg.from_dict(checkpoint.load_config(path))
        assert (
            type(cfg).__name__
            == json.loads((path.parent / "run.json").read_text())["config"]["type"].rpartition(":")[
                2
            ]
        )
        assert cfg.policy_kind == kind_of(path)
        if kind_of(path) == CONTROL:
            policy, interface = load_control_policy(path)
            assert interface.task == "Pendulum-v1"
            assert len(list(policy.actor.parameters())) > 1
        else:
            policy = checkpoint.load_policy(path)
            assert policy.action_dim == 4


@pytest.mark.parametrize("run", ["ppo", "sac"])
def test_a_run_of_control_goes_on_to_the_weights_it_had(home, run):
    run_dir = home / ".rrf/runs" / run
    expected = checkpoint.read_weights(run_dir / "global_step_4")
    atomic.remove(run_dir / "global_step_4")
    cfg = RunnerCfg.from_dict(checkpoint.load_config(run_dir / "global_step_2"))
    runner = cfg.build(run_dir, {})
    result = runner.run()
    assert result["steps"] == 4
    found = checkpoint.read_weights(run_dir / "global_step_4")
    assert found.keys() == expected.keys()
    for name, value in expected.items():  # to the last bit on the processor they were made on
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)


def test_a_run_of_vla_rl_goes_on(home):
    run_dir = home / ".rrf/runs/rl"
    atomic.remove(run_dir / "global_step_2")
    cfg = RunnerCfg.from_dict(checkpoint.load_config(run_dir / "global_step_1"))
    result = cfg.build(run_dir, {}).run()
    before = json.loads((SAVED / "runs/rl/result.json").read_text())
    assert (result["steps"], result["validations"][0]) == (2, before["validations"][0])
    assert result["metrics"]["env/return"] == pytest.approx(
        before["metrics"]["env/return"], rel=0.1
    )


def test_a_supervised_run_goes_on(home):
    run_dir = home / ".rrf/runs/sft"
    atomic.remove(run_dir / "global_step_4")
    cfg = RunnerCfg.from_dict(checkpoint.load_config(run_dir / "global_step_2"))
    _write_dataset(home / "datasets/metaworld-demo", cfg)
    result = cfg.build(run_dir, {}).run()
    assert result["steps"] == 4
    before = checkpoint.read_weights(run_dir / "global_step_2")
    after = checkpoint.read_weights(run_dir / "global_step_4")
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(moved) > len(before) / 2


def _write_dataset(root: Path, cfg) -> None:
    """Episodes of the shape that the run was trained on; what they show does not matter."""
    rng, policy = np.random.default_rng(0), cfg.policy
    shape = (9, *policy.image_size, 3)
    schema = Schema(
        fps=16,
        image_size=tuple(policy.image_size),
        cameras=tuple(policy.cameras),
        state=Vector(tuple("xyzg"), "m"),
        action=Vector(tuple("abcd"), "1", (-1.0,) * 4, (1.0,) * 4),
        has_reward=False,
        has_success=False,
    )
    episodes = [
        Episode(
            images={c: rng.integers(0, 255, shape, np.uint8) for c in policy.cameras},
            state=rng.uniform(-1, 1, (9, 4)).astype(np.float32),
            action=rng.uniform(-1, 1, (9, 4)).astype(np.float32),
            instruction=instruction,
            source=f"noise:{number}",
        )
        for number, instruction in enumerate(cfg.instructions * 2)
    ]
    write_dataset(root, schema, episodes)
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))


@pytest.mark.parametrize("name", ["few", "tiny"])
def test_evaluations_are_read_and_known_by_the_same_protocol(name):
    report = Evaluation.load(SAVED / "evaluations" / name)
    assert parse_protocol(report.protocol).hash == report.protocol_hash


def test_a_verdict_comes_out_as_it_was():
    folder = SAVED / "evaluations/few"
    written = Verdict.load(folder / "verdict-any.json")
    gate = load_gate(SAVED / "configs/gates/any.yaml")
    again = decide(Evaluation.load(folder), gate)
    assert written.outcome == "pass"
    assert again.outcome == written.outcome
    assert [check.name for check in again.checks] == [check.name for check in written.checks]
    for same in (
        *("gate", "gate_hash", "protocol_hash", "checkpoint_digest", "evaluation_digest"),
        *("champion_version", "champion_digest", "round", "rounds", "success"),
    ):
        assert getattr(again, same) == getattr(written, same), same


def test_champion_and_candidate_are_found_fetched_and_act(home):
    champion = versions.champion(CHAMPION)
    assert champion is not None
    assert champion.version == "1"
    (entry,) = promotion.ledger_of(CHAMPION).entries
    assert (entry.action, entry.version) == ("promote", "1")
    for reference, run in ((f"{CHAMPION}@champion", "ppo"), (f"{CANDIDATE}@candidate", "sft")):
        version = versions.find(reference)
        out = home / run
        loading.fetch(f"{version.name}/{version.version}", out)
        result = json.loads((SAVED / "runs" / run / "result.json").read_text())
        assert deployable_digest(out) == result["checkpoint_digest"] == version.checkpoint_digest


def test_mlflow_loads_what_was_registered(home, monkeypatch):
    import mlflow.pyfunc

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/.rrf/mlflow.db")
    model = mlflow.pyfunc.load_model(f"models:/{CHAMPION}@champion")
    answer = model.predict({"policy": np.zeros((2, 3), np.float32)}, params={"reset": True})
    policy = DeployedControl(SAVED / "runs/ppo/global_step_4")
    np.testing.assert_array_equal(answer, policy.act({"policy": np.zeros((2, 3), np.float32)}))
    model = mlflow.pyfunc.load_model(f"models:/{CANDIDATE}@candidate")
    assert model.predict(SEEN).shape == (1, 2, 4)


@pytest.mark.parametrize(
    ("reference", "run", "seen"),
    [
        (f"{CHAMPION}@champion", "ppo", {"policy": np.zeros((2, 3), np.float32)}),
        (f"models:/{CANDIDATE}@candidate", "sft", SEEN),
    ],
)
def test_load_policy_loads_it_without_running_the_code_that_was_registered_with_it(
    home, reference, run, seen
):
    planted = list((home / ".rrf/mlartifacts").rglob("policy_model.py"))
    assert len(planted) == 2
    for file in planted:
        file.write_text("raise RuntimeError('the code of the artifact was run')\n")
    answer = rrf.load_policy(reference).predict(seen)
    checkpoint_path = checkpoint.find(SAVED / "runs" / run)
    expected = deployed_class(checkpoint_path)(checkpoint_path).answer(seen, {})
    np.testing.assert_array_equal(answer, expected)
