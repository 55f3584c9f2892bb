"""The flow `train-hierarchy`: what it refuses, and all of it, tiny, on a server and a worker."""

import dataclasses
import json
import shutil

import pytest

from flows import systems_fit, train_hierarchy
from flows.train_hierarchy import STAGES, at_hand, check
from rrf.data.conversion.dataset_cfg import load_dataset_cfg
from rrf.data.dataset import layout
from rrf.data.schema import joined_units
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.runners.checkpoints.control import INTERFACE
from rrf.runners.checkpoints.deployable import CONTROL, VLA
from tests.flows.conftest import Checkout, as_words
from tests.hierarchy.conftest import system0  # noqa: F401 (a fixture)
from tests.registry.conftest import (
    empty_store,  # noqa: F401 (a fixture of `home`)
    home,  # noqa: F401 (a fixture)
    make_checkpoint,
    write_gate,
    write_json,
)
from tests.repository.structure import ROOT

TOUCH = "touch-red-cube-left"
PROTOCOL = f"""
name: touching
env: g1-table
tasks: [{TOUCH}]
seed: 4242
episodes_per_task: 2
action_repeat: 5
max_episode_steps: 60
execute_steps: 5
image_size: 64
cameras: [ego]
num_slots: 2
"""
GATE = """
name: touching
protocol: touching
overall_lower_bound: 0.0
limits: {fall: {max: 1.0}}
looks: [2]
champion_margin: 1.0
task_margin: 1.0
"""
BALANCE = {"env.num_envs": 8, "max_iterations": 1, "num_steps_per_env": 8}
BALANCE |= {"init_from": HumanoidCfg.system0, "algorithm.learning_rate": 1e-5}  # it stands
OVERRIDES = {
    **{f"balance.{name}": value for name, value in BALANCE.items()},
    **{"sft.max_steps": 4, "sft.batch_size": 4, "sft.validation_fraction": 0},
    **{"rl.max_rounds": 1, "rl.num_groups": 2, "rl.max_groups": 2, "rl.algorithm.group_size": 2},
    **{"rl.validation_episodes": 1, "rl.tasks": [TOUCH], "rl.env.num_envs": 4},
    "rl.env.max_episode_steps": 60,
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"system1": "a", "dataset": "demo"},
            "system1 is a, so nothing learns from dataset",
        ),
        ({"system1": "a", "tasks": ["b"]}, "so nothing learns from tasks"),
        ({"dataset": "demo", "tasks": ["b"]}, "dataset is demo, so no tasks are recorded"),
        ({"system1": "a", "overrides": {"sft.seed": 1}}, "This run trains: balance"),
        ({"overrides": {"rl.seed": 1}}, "This run trains: balance, sft"),
        ({"overrides": {"balanc.seed": 1}}, "did you mean 'balance'"),
        ({"gate": "configs/gates/g.yaml"}, "'p', whose simulator has no System 0; take a gate of"),
        ({"gate": "configs/gates/t.yaml", "tasks": ["touch-red-cub"]}, "'touch-red-cub'; did you"),
        ({"balance": "psi0-g1-table"}, "balance is psi0-g1-table, which trains a policy that sees"),
        ({"sft": "cartpole-ppo"}, "sft is cartpole-ppo, which trains a state-based policy; give"),
        ({"overrides": {"sft.policy.chunk_length": 2}}, "predicts 2 steps, but protocol"),
        ({"overrides": {"sft.max_step": 1}}, "did you mean 'max_steps'"),
        (
            {"overrides": {"balance.algorithm.learning_rate": 1e-6}},
            "^balance: algorithm: learning_rate is 1e-06, allowed",
        ),
        ({"gate": "configs/gates/t.yaml", "system0": "vla"}, "system0 is vla, a policy that sees"),
        ({"gate": "configs/gates/t.yaml", "system1": "body"}, "system1 is body, a state-based"),
        ({"gate": "configs/gates/t.yaml", "system0": "gone"}, r"gone. is neither a checkpoint"),
        ({"balance": "cartpole-ppo"}, "balance is cartpole-ppo, which trains no System 0 of a G1"),
        ({"overrides": {"balance.trackers": ["tensorboard"]}}, "so add mlflow"),
        ({"body": "a b"}, "model name 'a b' may contain only"),
        ({"model": "a b"}, "model name 'a b' may contain only"),
        (
            {"sft": "qwen3vl-laptop", "overrides": {"sft.policy.chunk_length": 5}},
            r"not a policy in two parts; e\.g\. psi0-g1",
        ),
        ({"like": "g1"}, "dataset g1: .*System 1 sends"),
        ({"dataset": "km"}, r"dataset km: System 1 sends vx \(km/h, .*\(m/s, .*units differ"),
        ({"dataset": "slow"}, r"dataset slow: .* trained on 20 actions per second .* executes 10"),
        ({"dataset": "jumps"}, r"dataset jumps: System 1 sends vz .* which System 0 does not take"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_trained(
    home,  # noqa: F811
    monkeypatch,
    given,
    message,
):
    write_gate(home / "configs/gates/g.yaml")
    (home / "configs/gates/t.yaml").write_text(GATE)
    (home / "configs/protocols/touching.yaml").write_text(PROTOCOL)
    make_checkpoint(home / "vla", kind=VLA)
    make_checkpoint(home / "body", kind=CONTROL)
    write_dataset(home, "km", units={"vx": "km/h"})
    write_dataset(home, "slow", fps=20)
    write_dataset(home, "jumps", names={"vx": "vz"})
    monkeypatch.chdir(home)
    for name, task in (("check", check), ("at_hand", at_hand)):
        monkeypatch.setattr(train_hierarchy, name, task.fn)
    monkeypatch.setattr(train_hierarchy, "fit", systems_fit.check)
    monkeypatch.setattr(train_hierarchy, "bring_dataset", lambda name: None)
    monkeypatch.setattr(train_hierarchy, "train", lambda *_: pytest.fail("began to train"))
    usual = {"gate": str(ROOT / "configs/gates/g1-table.yaml"), "model": "walker"}
    with pytest.raises(ValueError, match=message):
        train_hierarchy.train_hierarchy.fn(**usual | given)


def write_dataset(home, name, units=None, names=None, **changes):  # noqa: F811
    """What a published dataset says of itself: that of g1-table-demo, changed."""
    schema = load_dataset_cfg("g1-table-demo").schema()
    action = [(names or {}).get(one, one) for one in schema.action.names]
    kinds = [(units or {}).get(n, u) for n, u in zip(action, schema.action.units, strict=True)]
    vector = dataclasses.replace(schema.action, names=tuple(action), unit=joined_units(kinds))
    schema = dataclasses.replace(schema, action=vector, **changes)
    info = {key: 1 for key in layout._INFO_KEYS}
    info |= {"codebase_version": layout.VERSION, "fps": schema.fps}
    write_json(
        home / f"datasets/{name}/meta/info.json",
        info | {"features": layout.features_of(schema, "image")},
    )


def test_a_given_system_0_takes_what_the_dataset_has(system0, tmp_path):  # noqa: F811
    given = {"gate": "configs/gates/g1-table.yaml", "upper": None, "dataset": None}
    given |= {"like": "g1-table-demo", "sft": ["psi0-g1-table"]}
    systems_fit.check(below=str(system0), **given)
    copy = shutil.copytree(system0, tmp_path / "system0")
    file = copy / INTERFACE
    file.write_text(file.read_text().replace('"m/s"', '"km/h"'))
    with pytest.raises(ValueError, match=r"demo: .* sends vx \(m/s, .*takes vx \(km/h, .*units"):
        systems_fit.check(below=str(copy), **given)
    file.write_text(file.read_text().replace("left_knee_joint", "left_shin_joint"))
    with pytest.raises(ValueError, match=r"is no System 0 of this robot: .*left_shin_joint"):
        systems_fit.check(below=str(copy), **given)


def test_the_stages_of_a_run_are_those_that_are_not_given():
    trained = train_hierarchy._trained
    assert trained({"system0": None, "system1": None, "rl": "a"}) == list(STAGES)
    assert trained({"system0": "a", "system1": None, "rl": None}) == ["sft"]
    assert trained({"system0": "a", "system1": "b", "rl": None}) == []


def run(live: Checkout, **values) -> dict:
    """A run of the deployment; its flow run in the end."""
    given = {"gate": "configs/gates/touching.yaml", "model": "walker"} | values
    words = as_words(given)
    command = ("prefect", "deployment", "run", "train-hierarchy", "--watch", *words)
    live.run(*command, timeout_s=3600, check=False)
    [last] = live.flow_runs("train-hierarchy")[:1]
    assert last["state"]["type"] == "COMPLETED", last["state"]["message"]
    return last


@pytest.mark.slow
def test_three_systems_are_trained_joined_judged_and_replaced(live: Checkout):
    pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")
    (live.root / "configs/protocols/touching.yaml").write_text(PROTOCOL)
    (live.root / "configs/gates/touching.yaml").write_text(GATE)
    first = run(live, rl="psi0-g1-table-grpo", tasks=[TOUCH], episodes=3, overrides=OVERRIDES)
    assert first["name"] == "train-hierarchy walker version 1: balance, sft, rl"
    assert "promoted as walker/1" in first["state"]["message"]
    shown = live.run("rrf", "models", "lineage", "walker@champion")
    for said in ("sees by the System 2", "acts by the System 1", "stands by the System 0"):
        assert said in shown
    assert "registered as g1-whole-body version 1" in shown
    for said in ("g1-whole-body-ppo, seed 0", "psi0-g1-table-grpo, seed", "dataset g1-table-demo-"):
        assert said in shown
    evaluation = newest_evaluation(live)
    assert set(evaluation["metrics"]) == {"fall"}
    assert "system0" not in evaluation["protocol"]["simulator_versions"]

    words = [f"{name}={value}" for name, value in BALANCE.items()]
    live.run("rrf", "train", "g1-whole-body-ppo", *words, "seed=7", "--run-dir", "other")
    second = run(live, system1="walker@champion", system0="other")
    assert second["name"] == "train-hierarchy walker version 2: joined"
    both = [
        json.loads(live.run("rrf", "models", "lineage", f"walker/{number}", "--format", "json"))
        for number in (1, 2)
    ]
    one, other = [
        {how_of(graph, how) for how in ("sees by the System 2", "acts by the System 1")}
        for graph in both
    ]
    assert one == other
    assert how_of(both[0], "stands by the System 0") != how_of(both[1], "stands by the System 0")
    again = run(live, system1="walker/1", system0="other")
    assert again["name"] == "train-hierarchy walker version 2: joined"  # the same combination


def newest_evaluation(live: Checkout) -> dict:
    files = (live.root / ".rrf/evaluations").glob("*/evaluation.json")
    return json.loads(max(files, key=lambda path: path.stat().st_mtime).read_text())


def how_of(graph: dict, how: str) -> str:
    """The id of the only thing on which something stands in this way."""
    [edge] = [edge for edge in graph["edges"] if edge["how"] == how]
    return edge["on"]
