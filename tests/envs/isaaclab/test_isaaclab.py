"""Isaac Lab in its own interpreter: the contract of states, seeds, commands, what is refused, and
what its configs say without it.
"""

import json
import typing

import pytest
import torch

from rrf.envs.foreign import interpreters
from rrf.envs.isaaclab import tasks
from rrf.envs.isaaclab.configs import IsaacLabEnvCfg
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.envs.contract import check_attributes, check_bad_actions, check_steps, check_time_limit

CFG = IsaacLabEnvCfg(task="Isaac-Cartpole", num_envs=4, is_seeded=True)


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A workspace whose interpreter `isaaclab` has a list of tasks and nothing else."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.setattr(interpreters, "locks", dict)
    root = tmp_path / ".rrf/envs/isaaclab"
    (root / "bin").mkdir(parents=True)
    (root / "bin/python").touch()
    record = {"python": "bin/python", "cwd": None, "variables": {}}
    (root / interpreters.RECORD).write_text(json.dumps(record))
    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    network |= {"obs_normalization": True}
    settings = {
        "class_name": "OnPolicyRunner",
        "actor": network | {"distribution_cfg": {"init_std": 0.5, "std_type": "log"}},
        "critic": network,
        "obs_groups": {"actor": ["policy"], "critic": ["policy", "extra"]},
        "algorithm": {"entropy_coef": 0.25, "optimizer": "adam"},
        **{"num_steps_per_env": 7, "max_iterations": 9, "save_interval": 3, "clip_actions": 2.0},
    }
    cnn = settings | {"actor": network | {"class_name": "CNNModel"}}
    known = {"Isaac-Walk": settings, "Isaac-See": cnn, "Isaac-Plain": None}
    text = json.dumps({name: {"rsl_rl": said} for name, said in known.items()})
    (root / tasks.LIST).write_text(text)


def test_without_it_the_command_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    from rrf.cli.task_config import config_of

    with pytest.raises(ValueError, match="not set up here; type: rrf envs setup isaaclab"):
        config_of(None, [], task="Isaac-Velocity-Rough-H1")
    assert config_of(None, [], task="Isaac-Cartpole").experiment_name == "isaaclab-cartpole-ppo"
    with pytest.raises(ValueError, match="not set up here; type: rrf envs setup isaaclab"):
        CFG.build()


def test_a_task_trains_with_the_settings_that_rsl_rl_has(listed):
    from rrf.cli.task_config import config_of

    def config(task: str, algorithm: str | None = None) -> typing.Any:
        return config_of(None, [], task=task, algorithm=algorithm)

    cfg: typing.Any = config_of(None, ["env.num_envs=16"], task="Isaac-Walk")
    assert cfg.env == IsaacLabEnvCfg(task="Isaac-Walk", num_envs=16, clip_actions=2.0)
    assert cfg.policy.actor_cfg.backbone_cfg.hidden_features == [8]
    assert (cfg.policy.actor_cfg.init_std, cfg.policy.actor_cfg.use_log_std) == (0.5, True)
    assert cfg.policy.critic_cfg.observation_groups == ["policy", "extra"]
    assert (cfg.algorithm.entropy_coef, cfg.num_steps_per_env, cfg.max_iterations) == (0.25, 7, 9)
    assert config("Isaac-Plain").num_steps_per_env == 24
    caps = config("Isaac-Walk", "caps")
    assert (type(caps.algorithm).__name__, caps.algorithm.entropy_coef) == ("CAPSCfg", 0.25)
    with pytest.raises(ValueError, match="rsl_rl trains Isaac-See with a CNNModel"):
        config("Isaac-See")
    with pytest.raises(ValueError, match="no task 'Isaac-Wlak'; did you mean 'Isaac-Walk'"):
        config("Isaac-Wlak")
    with pytest.raises(ValueError, match="its names have no -v0; write Isaac-Walk"):
        config("Isaac-Walk-v0")
    with pytest.raises(ValueError, match="is an environment of Isaac Lab, for which there are no"):
        config("Isaac-Walk", "iql")


def test_protocols_are_of_the_tasks_of_their_presets():
    for preset, name in (("cartpole-ppo", "cartpole"), ("go2-flat-ppo", "go2-flat")):
        protocol: typing.Any = load_protocol(f"configs/protocols/isaaclab-{name}.yaml")
        cfg: typing.Any = resolve(f"isaaclab-{preset}")
        trained_in = cfg.env
        assert protocol.env.is_seeded
        assert protocol.env.task == trained_in.task
        assert protocol.env.overrides == trained_in.overrides
        assert protocol.is_about({"env": trained_in.to_dict()})
    with pytest.raises(ValueError, match=r"must end in \.hdf5"):
        CFG.replace(record="a.zarr")


@pytest.mark.slow
def test_it_fulfils_the_contract_of_states(isaaclab):
    env = CFG.build(seed=1)
    try:
        check_attributes(env)
        check_steps(env, 40)
        check_time_limit(env)
        check_bad_actions(env)
        assert env.interface.observation_terms == {
            "policy": {"joint_pos_rel": 2, "joint_vel_rel": 2}
        }
        assert env.max_episode_length == 300
        assert env.cfg.versions(["newton", "isaaclab"]) == {"newton": "1.6.1", "isaaclab": "3.0.0"}
    finally:
        env.close()


def episode(num_envs, slot, seed, others):
    """What an environment observes in 30 steps, while the others do something else."""
    env = CFG.replace(num_envs=num_envs).build(seed=seed + 1)
    try:
        env.reset_envs([slot], [seed])
        generator = torch.Generator().manual_seed(7)
        seen = []
        for _ in range(30):
            actions = torch.full((num_envs, 1), others)
            actions[slot] = torch.randn(1, generator=generator)
            seen.append(env.step(actions)[0]["policy"][slot])
        return torch.stack(seen)
    finally:
        env.close()


@pytest.mark.slow
def test_an_episode_is_a_function_of_its_seed(isaaclab):
    alone = episode(1, 0, 11, 0.0)
    assert torch.equal(episode(3, 2, 11, 0.4), alone)
    assert not torch.equal(episode(1, 0, 12, 0.0), alone)


@pytest.mark.slow
def test_it_says_what_is_not_there(isaaclab):
    for changes, said in (
        ({"task": "Isaac-Cartpoel"}, "did you mean 'Isaac-Cartpole"),
        ({"physics": "physiks"}, "physics=physiks"),
        ({"overrides": {"rewards.alife.weight": 2.0}}, "rewards has no 'alife'.*'alive'"),
        ({"policy_group": "critic"}, "no observations 'critic'; it has policy"),
        ({"task": "Isaac-Cartpole-Camera"}, "shows its policy images"),
    ):
        with pytest.raises(ValueError, match=said):
            CFG.replace(**changes).build()


@pytest.mark.slow
def test_a_robot_takes_commands_and_is_drawn(isaaclab):
    cfg = IsaacLabEnvCfg(
        task="Isaac-Velocity-Flat-UnitreeGo2", num_envs=2, is_seeded=True, draws=True
    )
    env = cfg.build(seed=0)
    try:
        commands = torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.0, -0.25]])
        env.set_command(commands)
        terms = env.interface.observation_terms["policy"]
        first = sum(list(terms.values())[: list(terms).index("velocity_commands")])
        for _ in range(3):
            seen = env.get_observations()["policy"][:, first : first + 3]
            torch.testing.assert_close(seen, commands)
            env.step(torch.zeros(2, env.num_actions))
        assert env.body_velocity().shape == (2, 3)
        assert (env.power() >= 0).all()
        pictures = env.pictures([0, 1], (60, 80))
        assert pictures.shape == (2, 60, 80, 3)
        assert pictures.std() > 3
    finally:
        env.close()


@pytest.mark.slow
def test_the_drives_of_the_panda_hold_it_against_gravity(isaaclab):
    env = IsaacLabEnvCfg(task="Isaac-Reach-Franka", num_envs=2, is_seeded=True).build(seed=0)
    try:
        for _ in range(40):
            env.step(torch.zeros(2, env.num_actions))
        joints = next(iter(env.interface.observation_terms["policy"].values()))
        assert joints == 9
        away = env.get_observations()["policy"][:, :joints]
        assert away.abs().max() < 0.1, "rad from where it is told to stay"
    finally:
        env.close()
