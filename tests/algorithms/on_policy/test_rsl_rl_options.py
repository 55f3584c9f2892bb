"""rsl_rl's own algorithms and every option of theirs, in our environments as `cfg.build` gives
them."""

import pytest
import torch
from rsl_rl.runners import DistillationRunner, OnPolicyRunner
from tensordict import TensorDict

from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg, SlowSensorEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg
from rrf.envs.wrappers.dynamic_env import DynamicEnv
from tests.algorithms.on_policy.test_rsl_rl_interface import GAUSSIAN, MODEL, settings

ENVS = {
    "gymnasium": GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4),
    "slow-sensors": SlowSensorEnvCfg(task="Pendulum-v1", num_envs=4, slow=[2]),
    "envpool": EnvPoolEnvCfg(task="Pendulum-v1", num_envs=4),
    "two-goals": TwoGoalsEnvCfg(num_envs=4),
    "mjlab": MjlabEnvCfg(task="Mjlab-Cartpole-Balance", num_envs=4, num_threads=0),
}
RND = {
    "weight": 0.5,
    "num_outputs": 4,
    "predictor_hidden_dims": [8],
    "target_hidden_dims": [8],
    "state_normalization": True,
    "reward_normalization": True,
    "weight_schedule": {"mode": "linear", "initial_step": 0, "final_step": 99, "final_value": 0.0},
}
RECURRENT = {"class_name": "RNNModel", "rnn_type": "gru", "rnn_hidden_dim": 8, "rnn_num_layers": 1}


@pytest.fixture(params=list(ENVS))
def env(request):
    if request.param == "envpool":
        pytest.importorskip("envpool", exc_type=ImportError)
    made = ENVS[request.param].build(seed=0)
    yield made
    made.close()


def mirrored(env, obs, actions):
    """The system and its mirror image, and what rsl_rl's symmetries read of an environment."""
    assert env.unwrapped.step_dt > 0
    if obs is not None:
        obs = torch.cat([obs, TensorDict({n: -v for n, v in obs.items()}, obs.batch_size)])
    return obs, None if actions is None else torch.cat([actions, -actions])


def learned(env, folder=None, model=None, **algorithm):
    """The runner after three iterations of rsl_rl's PPO, whose networks have changed."""
    group = next(iter(env.interface.observation_dims))
    groups = {name: [group] for name in ("actor", "critic", "rnd_state")}
    cfg = settings("PPO", **algorithm) | {"obs_groups": groups}
    for name in ("actor", "critic"):
        cfg[name] |= model or {}
    runner = OnPolicyRunner(env, cfg, folder and str(folder), "cpu")
    before = {name: value.clone() for name, value in runner.alg.actor.state_dict().items()}
    runner.learn(3, init_at_random_ep_len=True)
    after = runner.alg.actor.state_dict()
    assert not torch.equal(before["mlp.0.weight"], after["mlp.0.weight"])
    return runner


def test_random_network_distillation_learns_in_every_environment(env):
    runner = learned(env, rnd_cfg=dict(RND))
    assert runner.alg.rnd.initial_weight == pytest.approx(0.5 * env.interface.step_dt)
    assert 0 < runner.alg.rnd.weight < runner.alg.rnd.initial_weight  # the schedule has begun
    assert (runner.alg.intrinsic_rewards != 0).all()


@pytest.mark.parametrize("uses", ["use_data_augmentation", "use_mirror_loss"])
def test_symmetry_learns_in_every_environment(env, uses):
    symmetry = {"data_augmentation_func": mirrored, "mirror_loss_coeff": 0.5, uses: True}
    runner = learned(env, symmetry_cfg=symmetry)
    assert runner.alg.symmetry.env is env


def test_recurrent_networks_learn_in_every_environment(env):
    runner = learned(env, model=RECURRENT)
    policy = runner.get_inference_policy("cpu")
    with torch.inference_mode():
        assert policy(env.get_observations()).shape == (4, env.num_actions)


@pytest.mark.parametrize("env", ["gymnasium", "mjlab"], indirect=True)
@pytest.mark.parametrize(
    "option",
    [
        {"schedule": "adaptive", "desired_kl": 0.01},
        {"schedule": "fixed"},
        {"use_clipped_value_loss": False, "normalize_advantage_per_mini_batch": True},
        {"optimizer": "adamw"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_other_options_of_its_ppo_learn(env, option):
    learned(env, **option)


@pytest.mark.parametrize("student", [{}, RECURRENT], ids=["feed-forward", "recurrent"])
@pytest.mark.parametrize("env", ["gymnasium", "mjlab"], indirect=True)
def test_its_distillation_learns_from_a_teacher_of_its_ppo(env, tmp_path, student):
    learned(env, tmp_path)
    group = next(iter(env.interface.observation_dims))
    cfg = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"student": [group], "teacher": [group]},
        "algorithm": {
            "class_name": "Distillation",
            "num_learning_epochs": 1,
            "gradient_length": 4,
            "learning_rate": 1e-3,
        },
        "student": MODEL | {"distribution_cfg": dict(GAUSSIAN)} | student,
        "teacher": MODEL | {"distribution_cfg": dict(GAUSSIAN)},
        "seed": 5,
    }
    runner = DistillationRunner(env, cfg, None, "cpu")
    runner.load(str(tmp_path / "model_2.pt"), load_cfg={"teacher": True})
    before = runner.alg.student.mlp[0].weight.clone()
    runner.learn(2)
    assert not torch.equal(before, runner.alg.student.mlp[0].weight)


def test_a_wrapped_environment_has_what_rsl_rl_reads():
    env = DynamicEnv(ENVS["gymnasium"].build(seed=0))
    assert learned(env, rnd_cfg=dict(RND)).alg.rnd.initial_weight == pytest.approx(0.025)
