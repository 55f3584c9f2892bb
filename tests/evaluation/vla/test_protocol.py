"""Protocols: their hash, their initial states, what they refuse."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from rrf import atomic
from rrf.config import read_yaml
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.robosuite.configs import RobosuiteCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.gates.gate import load_gate
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.protocols.files import load_protocol, parse_protocol
from rrf.evaluation.vla.baselines import RandomPolicy
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.play import played_protocol
from rrf.evaluation.vla.protocol import VLAProtocol
from rrf.lineage import Lineage

CONFIGS = Path(__file__).parents[3] / "configs"


def small(**changes) -> ProtocolCfg:
    return ProtocolCfg(
        name="small", tasks=["reach", "far"], seed=4242, episodes_per_task=3
    ).replace(**changes)


def test_hash_does_not_depend_on_the_order_of_keys():
    forward = {"name": "a", "tasks": ["x"], "seed": 1, "greedy": True}
    backward = dict(reversed(forward.items()))
    assert ProtocolCfg.from_dict(forward).hash == ProtocolCfg.from_dict(backward).hash


def test_hash_of_the_demo_protocol_is_fixed():
    protocol = ProtocolCfg.from_dict(read_yaml(CONFIGS / "protocols/metaworld-demo.yaml"))
    assert protocol.hash == "0a560478f9a42f68d50c2cd21e19fd92daedbf4212b46b92269cf3135ccc01e1"


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": ["far", "reach"]},
        {"seed": 4243},
        {"first_index": 1},
        {"episodes_per_task": 4},
        {"max_episode_steps": 41},
        {"execute_steps": 1},
        {"action_repeat": 4},
        {"image_size": 96},
        {"cameras": ["corner"]},
        {"greedy": False},
        {"policy_seed": 1},
        {"inference_batch": 4},
        {"action_metrics": True},
        {"simulator_versions": {"mujoco": "3.3.2"}},
    ],
)
def test_hash_changes_with_everything_that_can_change_a_result(change):
    assert small(**change).hash != small().hash


def test_hash_leaves_out_the_name_and_how_many_run_side_by_side():
    assert small(name="other", num_slots=3).hash == small().hash


def test_groups_of_tasks_are_for_the_report_only():
    grouped = small(groups={"known": ["reach"], "new": ["far"]})
    assert grouped.hash == small().hash
    assert "groups" not in small().to_dict()
    with pytest.raises(ValueError, match="groups: 'new' has 'fra', which is not among its tasks"):
        small(groups={"new": ["fra"]})
    with pytest.raises(ValueError, match="groups: 'new' has no tasks"):
        small(groups={"new": []})


def test_what_is_on_record_without_versions_of_a_simulator_keeps_its_digests():
    recorded = small().to_dict()
    assert "simulator_versions" not in recorded
    assert ProtocolCfg.from_dict(recorded).hash == small().hash
    with_versions = small(simulator_versions={"mujoco": "3.3.2"})
    assert ProtocolCfg.from_dict(with_versions.to_dict()) == with_versions
    assert with_versions.base_hash == small().base_hash
    demo = load_gate(CONFIGS / "gates/metaworld-demo.yaml")
    assert demo.hash == "079e4c39090740542927cdcf4f9c6999b2a74ab9abe12ed28e0a3da145cb2204"
    assert demo.protocol.base_hash[:16] == "754d1bf1ea97509c"


def test_a_protocol_is_run_with_the_versions_of_its_simulator():
    played = small().here()
    assert played.versions == {
        name: importlib.metadata.version(name) for name in ("metaworld", "mujoco", "mujoco-warp")
    }
    assert played.here() == played
    with pytest.raises(ValueError, match="move or draw otherwise") as error:
        small(simulator_versions={"mujoco": "3.3.0"}).here()
    assert str(error.value).startswith(
        "protocol 'small' is for mujoco 3.3.0, but Meta-World runs with mujoco "
        f"{importlib.metadata.version('mujoco')} here, which may move or draw otherwise; type: "
        "uv pip install mujoco==3.3.0. Or copy the protocol"
    )


def test_a_foreign_simulator_of_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    protocol = load_protocol(CONFIGS / "protocols/libero-object.yaml")
    with pytest.raises(ValueError, match="which is not set up here; type: rrf envs setup libero"):
        protocol.here()
    packages = [{"name": "MuJoCo", "version": "3.3.7"}, {"name": "robosuite", "version": "1.4.0"}]
    record = {"python": sys.executable, "variables": {}, "cwd": None, "packages": packages}
    atomic.write_json(tmp_path / ".rrf/envs/libero/environment.json", record)
    with pytest.raises(
        ValueError, match=r"is for mujoco 3\.3\.2, but LIBERO runs with mujoco 3\.3"
    ) as e:
        protocol.here()
    assert "pin mujoco==3.3.2 in configs/envs/libero.lock and type: rrf envs setup" in str(e.value)
    other = protocol.replace(simulator_versions={}).here()
    assert other.versions == {"mujoco": "3.3.7", "robosuite": "1.4.0"}
    assert other.hash != protocol.hash


def test_initial_states_come_task_by_task():
    assert small(episodes_per_task=2, first_index=5).initial_states() == [
        InitialState("reach", 4242, 5),
        InitialState("reach", 4242, 6),
        InitialState("far", 4242, 5),
        InitialState("far", 4242, 6),
    ]


def test_extending_keeps_the_episodes_already_run():
    assert set(small().initial_states()) < set(small().extended(2).initial_states())
    assert len(small().extended(2).initial_states()) == 10


@pytest.mark.parametrize(("seed", "use"), [(777, "demonstrations"), (42, "reinforcement learning")])
def test_initial_states_used_for_training_are_refused(seed, use):
    with pytest.raises(ValueError, match=f"seed {seed} is the seed of {use}"):
        small(seed=seed)


def test_impossible_protocols_are_refused():
    with pytest.raises(ValueError, match=r"initial states 0\.\.50, but one seed has only 0\.\.49"):
        small(episodes_per_task=51)
    with pytest.raises(ValueError, match="lists a task twice"):
        small(tasks=["reach", "reach"])
    with pytest.raises(ValueError, match="max_episode_steps is 0"):
        small(max_episode_steps=0)
    with pytest.raises(ValueError, match="did you mean 'greedy'"):
        ProtocolCfg.from_dict({"name": "a", "tasks": ["x"], "seed": 1, "greedi": True})


@pytest.mark.parametrize("path", sorted((CONFIGS / "gates").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_gate_file_is_valid(path):
    assert load_gate(path).name == path.stem


def test_gates_and_protocols_import_neither_torch_nor_mlflow():
    program = (
        "import sys, rrf.evaluation.gates.gate, rrf.evaluation.protocols.base\n"
        "import rrf.evaluation.results\n"
        "assert not {'torch', 'mlflow', 'metaworld', 'av'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_play_holds_an_action_for_as_long_as_the_training_did():
    policy = {"chunk_length": 2, "image_size": [64, 64], "cameras": ["agentview"]}
    options = {**ProtocolCfg.play_options, "task": "Lift"}
    env = RobosuiteCfg(action_repeat=2).to_dict()
    for config, env_name, expected in (
        ({"env": env}, None, 2),
        ({"env": MetaWorldCfg(action_repeat=4).to_dict()}, "robosuite", 1),
        ({}, "robosuite", 1),  # the simulator's own
    ):
        one = Candidate(Path(), "one", "vla", "", {"policy": policy, **config}, Lineage())
        played = played_protocol(one, 4242, {**options, "env": env_name})
        assert (played.env, played.action_repeat) == ("robosuite", expected)


def test_play_takes_one_task_of_a_protocol_with_groups():
    one = Candidate(Path(), "one", "vla", "", {"policy": {}}, Lineage())
    file, task = CONFIGS / "protocols/libero-pro-bowl.yaml", "put_the_bowl_on_the_plate@swap"
    options = {**ProtocolCfg.play_options, "protocol": str(file), "task": task}
    played = played_protocol(one, 4242, options)
    assert (played.tasks, played.groups) == ([task], {})


def test_a_policy_without_cameras_is_filmed_by_the_simulators(tmp_path):
    cfg = ProtocolCfg(
        name="states",
        tasks=["reach-v3"],
        seed=1,
        episodes_per_task=1,
        max_episode_steps=2,
        cameras=[],
    )
    assert cfg.film_camera == "corner2"
    protocol = VLAProtocol(cfg)
    candidate = Candidate(tmp_path, "random", "vla", "0", {}, Lineage(), RandomPolicy(2, 4))
    evaluation = protocol.evaluate(candidate, Resources(workers=0))
    (video,) = protocol.film(candidate, evaluation, 1, tmp_path, Resources(workers=0))
    assert (tmp_path / video["path"]).stat().st_size > 0


_PLAIN = {"name": "p", "tasks": ["reach-v3", "push-v3"], "seed": 1, "episodes_per_task": 2}


def test_changes_are_tasks_and_groups():
    parsed = parse_protocol(_PLAIN | {"changes": ["light"], "groups": {"far": ["push-v3@light"]}})
    changed = ["reach-v3@light", "push-v3@light"]
    written = {"as trained": _PLAIN["tasks"], "light": changed, "far": changed[1:]}
    tasks = [*_PLAIN["tasks"], *changed]
    assert parsed == parse_protocol(_PLAIN | {"tasks": tasks, "groups": written})
    assert parsed.hash == parse_protocol(_PLAIN | {"tasks": tasks}).hash


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"changes": "light"}, "changes is 'light'"),
        ({"changes": ["light"], "tasks": None}, "tasks is None"),
        ({"changes": ["light"], "groups": {"light": ["reach-v3"]}}, "groups: light"),
    ],
)
def test_changes_that_cannot_be(data, said):
    with pytest.raises(ValueError, match=said):
        parse_protocol(_PLAIN | data)
