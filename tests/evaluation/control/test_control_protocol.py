"""Protocols of state-based control: what they refuse, their hash, and how a file is found."""

import functools
from pathlib import Path

import pytest

from rrf.envs.gymnasium.configs import GymnasiumEnvCfg, RegisteredEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.control.configs import ControlProtocolCfg
from rrf.evaluation.protocols import files
from rrf.evaluation.protocols.files import find_protocol, load_protocol, parse_protocol
from rrf.evaluation.protocols.limits import LimitCfg
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.lineage import Lineage

CONFIGS = Path(__file__).parents[3] / "configs"


def small(**changes) -> ControlProtocolCfg:
    return ControlProtocolCfg(
        name="small",
        seed=1,
        env=GymnasiumEnvCfg(num_envs=4),
        max_episode_steps=500,
        success={"return": LimitCfg(min=475)},
    ).replace(**changes)


def walking(**changes) -> ControlProtocolCfg:
    return small(
        env=MjlabEnvCfg(num_envs=4, backend="native"),
        commands={"stand": [0, 0, 0], "go": [1, 0, 0]},
        success={"fall": LimitCfg(max=0)},
    ).replace(**changes)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"episodes_per_task": 21},
        {"max_episode_steps": 400},
        {"env": MjlabEnvCfg(num_envs=8, backend="native")},
        {"env": MjlabEnvCfg(num_envs=4, backend="native", physics="fast")},
        {"env": MjlabEnvCfg(num_envs=4, backend="native", overrides={"events.push_robot": None})},
        {"commands": {"stand": [0, 0, 0], "go": [0.9, 0, 0]}},
        {"settling_s": 0.5},
        {"success": {"fall": LimitCfg(max=1)}},
        {"greedy": False},
        {"policy_seed": 1},
    ],
)
def test_hash_changes_with_everything_that_can_change_a_result(change):
    assert walking(**change).hash != walking().hash


def test_hash_leaves_out_the_name_and_the_threads():
    faster = MjlabEnvCfg(num_envs=4, backend="native", num_threads=8)
    assert walking(name="other", env=faster).hash == walking().hash


def test_a_protocol_survives_plain_data():
    assert parse_protocol(walking().to_dict()) == walking()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"success": {}}, "success is empty"),
        ({"success": {"retrun": LimitCfg(min=1)}}, "did you mean 'return'"),
        (
            {"commands": {"go": [1, 0]}},
            r"command 'go' is \[1.0, 0.0\], expected three numbers: \[forward",
        ),
        (
            {"env": MjlabEnvCfg(num_envs=5, backend="native")},
            "is 5, which cannot be shared equally by 2 commands",
        ),
        ({"env": RegisteredEnvCfg()}, "env.num_envs is 0; set it to 1 or more"),
        ({"env": MjlabEnvCfg(num_envs=4)}, "env.backend is auto"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0, not at least 1"),
        ({"commands": {}}, "success asks for fall, which can be measured only with `commands`"),
    ],
)
def test_bad_protocols_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        walking(**change)


def test_limits_say_what_they_ask():
    assert str(LimitCfg(min=-200)) == "at least -200"
    assert str(LimitCfg(min=1, max=2.5)) == "at least 1 and at most 2.5"
    assert LimitCfg(max=0.2).holds(0.2)
    assert not LimitCfg(min=475).holds(474.9)
    with pytest.raises(ValueError, match="needs min, max or both"):
        LimitCfg()
    with pytest.raises(ValueError, match=r"min is 2\.0 and max is 1\.0, but min must"):
        LimitCfg(min=2, max=1)


def test_the_kind_of_a_protocol_is_seen_from_its_environment():
    pictures = parse_protocol({"name": "p", "tasks": ["drawer-open-v3"], "seed": 1})
    assert isinstance(pictures, ProtocolCfg)
    data = {"name": "c", "seed": 1, "max_episode_steps": 5, "success": {"return": {"min": 1}}}
    gym = {"type": "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", "task": "CartPole-v1"}
    assert isinstance(parse_protocol(data | {"env": gym}), ControlProtocolCfg)
    with pytest.raises(ValueError, match="did you mean 'max_episode_steps'"):
        parse_protocol(data | {"env": gym, "max_episode_step": 5})


def trained_in(env) -> Candidate:
    return Candidate(Path("run"), "run", "control", "12", {"env": env.to_dict()}, Lineage())


def test_every_file_of_ours_is_the_only_one_about_its_task(monkeypatch):
    monkeypatch.setattr(files, "load_protocol", functools.cache(load_protocol))
    found = {path.stem: load_protocol(path) for path in (CONFIGS / "protocols").glob("*.yaml")}
    for name, cfg in found.items():
        assert cfg.name == name
        if isinstance(cfg, ControlProtocolCfg) and not (cfg.commands and cfg.env.measures):
            assert find_protocol(trained_in(cfg.env)).stem == name
    assert {"go1-flat", "go1-rough", "g1-flat", "g1-rough", "pendulum", "halfcheetah"} <= set(found)


def test_the_module_before_the_id_of_a_task_makes_it_no_other_one():
    mine = GymnasiumEnvCfg(task="MyTask-v0", num_envs=4)
    theirs = trained_in(RegisteredEnvCfg(task="my_tasks:MyTask-v0"))
    assert small(env=mine).is_about(theirs.config)
    theirs = trained_in(RegisteredEnvCfg(task="my_tasks:MyTask-v1"))
    assert not small(env=mine).is_about(theirs.config)


def test_a_task_without_a_protocol_says_what_to_do():
    with pytest.raises(
        ValueError, match=r"is for Acrobot-v1; write one there like .*cartpole\.yaml"
    ):
        find_protocol(trained_in(GymnasiumEnvCfg(task="Acrobot-v1")))


def test_what_a_policy_may_see_chooses_the_protocol_too():
    hidden = GymnasiumEnvCfg(task="Pendulum-v1", hidden=[2])
    assert find_protocol(trained_in(hidden)).stem == "pendulum-hidden"
    hidden = GymnasiumEnvCfg(task="Pendulum-v1", hidden=[0])
    with pytest.raises(ValueError, match=r"no protocol in .* is for Pendulum-v1"):
        find_protocol(trained_in(hidden))


def test_the_documentation_names_every_protocol_gate_and_preset():
    from rrf.evaluation.gates.gate import load_gate
    from rrf.presets import PRESETS, resolve
    from rrf.runners.control.configs import ControlRunnerCfg

    text = (CONFIGS.parent / "docs/locomotion.md").read_text()
    gates = {path.stem: load_gate(path) for path in (CONFIGS / "gates").glob("*.yaml")}
    names = [name for name, gate in gates.items() if isinstance(gate.protocol, ControlProtocolCfg)]
    names += [gates[name].protocol.name for name in names]
    names += [name for name in PRESETS if isinstance(resolve(name), ControlRunnerCfg)]
    assert [name for name in names if f"`{name}`" not in text] == []
