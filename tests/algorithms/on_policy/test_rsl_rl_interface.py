"""Our algorithms in rsl_rl's unmodified runner, and rsl_rl's algorithm in our environments."""

import copy
import types

import numpy as np
import pytest
import torch
from rsl_rl.runners import OnPolicyRunner as RslRlRunner

from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks import plain_mlp
from rrf.policies import LipsNetActorCfg, PopulationPackCfg
from rrf.policies.control.configs import ActorCriticPackCfg
from tests.envs.toy import CorridorCfg

MODEL = {
    "class_name": "MLPModel",
    "hidden_dims": (16, 16),
    "activation": "elu",
    "obs_normalization": True,
}
GAUSSIAN = {"class_name": "GaussianDistribution", "init_std": 0.7, "std_type": "log"}


class Rl:
    """Corridor as a VecEnv of others: no `interface`, no "final_obs"."""

    def __init__(self, num_envs=6):
        self._env = CorridorCfg(num_envs=num_envs).build(seed=3)
        self.num_envs, self.num_actions, self.device = num_envs, 1, "cpu"
        self.max_episode_length, self.cfg = 10, {}

    @property
    def episode_length_buf(self):
        return self._env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value):
        self._env.episode_length_buf = value

    def get_observations(self):
        return self._env.get_observations()

    def step(self, actions):
        observations, rewards, dones, extras = self._env.step(actions)
        return observations, rewards, dones.long(), {"time_outs": extras["time_outs"]}


def settings(class_name="rrf.algorithms:CAPS", **algorithm):
    return {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy", "critic"]},
        "algorithm": {
            "class_name": class_name,
            "num_learning_epochs": 2,
            "num_mini_batches": 2,
            "optimizer": "adam",
            **algorithm,
        },
        "actor": MODEL | {"distribution_cfg": dict(GAUSSIAN)},
        "critic": dict(MODEL),
        "seed": 5,
    }


def weights(runner):
    return {name: value.clone() for name, value in runner.alg.policy.state_dict().items()}


def test_rsl_rls_runner_trains_saves_loads_and_exports_our_algorithm(tmp_path):
    runner = RslRlRunner(Rl(), settings(temporal_coef=0.3), str(tmp_path), "cpu")
    before = weights(runner)
    assert runner.alg.policy.critic.width == 3
    assert runner.alg.policy.actor.exploration()["policy/std"] == pytest.approx(0.7)
    runner.learn(3, init_at_random_ep_len=True)
    after = weights(runner)
    assert not torch.equal(before["actor.log_std"], after["actor.log_std"])

    again = RslRlRunner(Rl(), settings(temporal_coef=0.3), None, "cpu")
    again.load(str(tmp_path / "model_2.pt"))
    assert again.current_learning_iteration == 2
    for name, value in weights(again).items():
        assert torch.equal(value, after[name]), name
    assert again.alg.learning_rate == runner.alg.learning_rate
    for name, value in runner.alg.algorithm.state()[0].items():
        assert torch.equal(again.alg.algorithm.state()[0][name], value), name

    observations = runner.env.get_observations()
    actions = runner.get_inference_policy("cpu")(observations)
    runner.export_policy_to_jit(str(tmp_path))
    jit = torch.jit.load(tmp_path / "policy.pt")
    torch.testing.assert_close(jit(observations["policy"][:1]), actions[:1])


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_mjlabs_runner_trains_saves_and_loads_our_algorithm(tmp_path, std_type):
    runner_class = pytest.importorskip("mjlab.rl.runner").MjlabOnPolicyRunner

    def made(log_dir):
        cfg = settings("rrf.algorithms:PPO")
        cfg["actor"]["distribution_cfg"] |= {"std_type": std_type}
        env = Rl()
        env.unwrapped = types.SimpleNamespace(common_step_counter=0)
        cfg |= {"logger": "tensorboard", "upload_model": False}
        return runner_class(env, cfg, log_dir, "cpu")

    runner = made(str(tmp_path))
    runner.learn(2)
    again = made(None)
    again.load(str(tmp_path / "model_1.pt"))
    for name, value in weights(again).items():
        assert torch.equal(value, weights(runner)[name]), name


def test_what_is_off_policy_is_refused_with_the_way_to_train_it(tmp_path):
    with pytest.raises(ValueError, match=r"SACTrans is off-policy.*use `rrf train`"):
        RslRlRunner(Rl(), settings("rrf.algorithms:SACTrans"), str(tmp_path), "cpu")


def test_policy_is_exported_to_onnx_as_mjlab_does_it(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    runner = RslRlRunner(Rl(), settings(), None, "cpu")
    runner.learn(1)
    model = runner.alg.get_policy().as_onnx(verbose=False).double()
    assert runner.alg.policy.actor.log_std.dtype == torch.float32  # it learns on, where it was
    model.float()
    torch.onnx.export(
        model,
        model.get_dummy_inputs(),
        str(tmp_path / "policy.onnx"),
        opset_version=18,
        input_names=model.input_names,
        output_names=model.output_names,
        dynamo=False,
    )
    observations = runner.env.get_observations()
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    (found,) = session.run(None, {"obs": observations["policy"][:1].numpy()})
    np.testing.assert_allclose(
        found, runner.get_inference_policy("cpu")(observations)[:1].numpy(), atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("PPO", None),
        ("L2C2", None),
        ("Lips", None),
        ("LCP", None),
        (
            "LipsNetPPO",
            ActorCriticPackCfg(actor_cfg=LipsNetActorCfg(backbone_cfg=plain_mlp([8], "ReLU"))),
        ),
        ("SAPG", PopulationPackCfg(num_members=3, latent_dim=4)),
        (
            "EPO",
            PopulationPackCfg(
                num_members=6, latent_dim=4, learn_latents=False, std_per_member=False
            ),
        ),
    ],
)
def test_every_algorithm_is_found_by_its_class_name(name, pack):
    cfg = settings(f"rrf.algorithms:{name}")
    if pack:
        cfg["policy_cfg"] = pack.to_dict()
    runner = RslRlRunner(Rl(), cfg, None, "cpu")
    runner.learn(2)
    assert type(runner.alg.algorithm).__name__ == name
    assert runner.get_inference_policy("cpu")(runner.env.get_observations()).shape == (6, 1)


def test_intrinsic_rewards_are_shown_to_the_runner(tmp_path):
    cfg = settings("rrf.algorithms:PPO", rnd_cfg={"weight": 0.25, "num_features": 4})
    runner = RslRlRunner(Rl(), cfg, str(tmp_path), "cpu")
    runner.learn(2)
    assert runner.alg.rnd.weight == 0.25
    assert runner.alg.intrinsic_rewards.shape == (6,)
    assert (runner.alg.intrinsic_rewards > 0).all()


def test_recurrent_models_are_taken_over():
    cfg = settings("rrf.algorithms:PPO")
    for name in ("actor", "critic"):
        cfg[name] |= {"class_name": "RNNModel", "rnn_type": "gru", "rnn_hidden_dim": 8}
    runner = RslRlRunner(Rl(), cfg, None, "cpu")
    runner.learn(2)
    policy = runner.get_inference_policy("cpu")
    policy(runner.env.get_observations())
    policy.reset(torch.tensor([1, 0, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="recurrent networks"):
        policy.as_jit()


def test_a_checkpoint_fits_another_number_of_environments(tmp_path):
    cfg = settings("rrf.algorithms:PPO", normalize_rewards=True, rnd_cfg={"weight": 0.1})
    for name in ("actor", "critic"):
        cfg[name] |= {"class_name": "RNNModel", "rnn_type": "gru", "rnn_hidden_dim": 8}
    runner = RslRlRunner(Rl(), copy.deepcopy(cfg), str(tmp_path), "cpu")
    runner.learn(2)
    assert runner.alg.algorithm.actor_memory.abs().max() > 0
    other = RslRlRunner(Rl(3), copy.deepcopy(cfg), None, "cpu")
    other.load(str(tmp_path / "model_1.pt"))
    for name, value in weights(runner).items():
        assert torch.equal(value, weights(other)[name]), name
    # Its environments begin their episodes, and have nothing to remember.
    assert other.alg.algorithm.actor_memory.abs().max() == 0
    assert other.alg.algorithm.actor_memory.shape[1] == 3
    other.learn(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((None, "torch_compile_mode", "reduce-overhead"), "CUDA graphs .* allowed: 'default'"),
        (("algorithm", "temporal_coeff", 1.0), "did you mean 'temporal_coef'"),
        (("algorithm", "optimizer", "sgd"), "optimizer is 'sgd', allowed: 'adam'"),
        (("actor", "activation", "eluu"), "did you mean 'elu'"),
        (("critic", "class_name", "CNNModel"), "'CNNModel' has no counterpart"),
        (("actor", "distribution_cfg", {"class_name": "BetaDistribution"}), "BetaDistribution"),
        (("actor", "distribution_cfg", {"learn_std": False}), "learn_std is False, allowed: True"),
        (("actor", "distribution_cfg", {"init_stdd": 1.0}), "did you mean 'init_std'"),
        (("critic", "hiden_dims", [8]), "did you mean 'hidden_dims'"),
        (("algorithm", "schedule", "linear"), "does not report its progress"),
    ],
)
def test_a_setting_that_does_not_exist_is_named(change, message):
    cfg = copy.deepcopy(settings())
    part, name, value = change
    (cfg[part] if part else cfg)[name] = value
    with pytest.raises(ValueError, match=message):
        RslRlRunner(Rl(), cfg, None, "cpu")


def test_rsl_rls_own_ppo_trains_in_our_environment(tmp_path):
    env = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4).build(seed=0)
    cfg = settings("PPO")
    cfg["obs_groups"] = {"actor": ["policy"], "critic": ["policy"]}
    runner = RslRlRunner(env, cfg, str(tmp_path), "cpu")
    before = copy.deepcopy(runner.alg.actor.state_dict())
    runner.learn(3, init_at_random_ep_len=True)
    assert not torch.equal(before["mlp.0.weight"], runner.alg.actor.state_dict()["mlp.0.weight"])
    assert (tmp_path / "model_2.pt").is_file()
