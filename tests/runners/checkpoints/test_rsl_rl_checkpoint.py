"""rsl_rl's checkpoints: read in three generations, written so that rsl_rl itself goes on."""

from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.envs.control_env import Interface
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.actor_critic import ActorCritic, ControlPolicy
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    CategoricalActorCfg,
    LipsNetActorCfg,
    MemoryCfg,
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.runners.checkpoints.rsl_rl_checkpoint import fitted, read, weights_of, write
from rrf.storage.rollout import ControlStep
from tests.closeness import assert_close
from tests.envs.toy import CorridorCfg
from tests.golden_files import GOLDEN, activation, configs, golden

FILE = "rsl_rl_policy_expected.npz"
META = configs(FILE)["meta"]
CHECKPOINT = GOLDEN / META["checkpoint"]
SMALL = plain_mlp([16, 12], "ELU")


def imported(path) -> ActorCritic:
    """The golden policy: what the actor reads, and what the critic reads besides."""
    found, (config, arrays) = read(path), golden(FILE, "policy")
    [own], [same, besides] = (config["obs_groups"][who] for who in ("actor", "critic"))
    assert own == same
    width = arrays["observations"].shape[1]
    widths = {own: width, besides: found.critic["backbone.layers.0.weight"].shape[1] - width}
    actor, critic = (
        plain_mlp(config[who]["hidden_dims"], activation(config[who]["activation"]))
        for who in ("actor", "critic")
    )
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=actor, observation_groups=[own]),
        critic_cfg=VNetworkCfg(backbone_cfg=critic, observation_groups=[own, besides]),
    )
    interface = Interface(widths, num_actions=arrays["actions"].shape[1])
    policy = fitted(pack, found).build(interface)
    policy.load_state_dict(weights_of(found))
    return policy.eval()


def actions_of(policy: ActorCritic, observations: torch.Tensor) -> torch.Tensor:
    groups = {policy.actor.cfg.observation_groups[0]: observations}
    return ControlPolicy(policy.actor).act(TensorDict(groups, [len(observations)]))


def as_generation(number: int, path: Path) -> Path:
    """The golden checkpoint, of the newest generation, as an older rsl_rl would have written it."""
    new = torch.load(CHECKPOINT, weights_only=True)
    actor, critic = dict(new["actor_state_dict"]), dict(new["critic_state_dict"])
    [param] = [name for name in actor if name.startswith("distribution.")]
    std = param.removeprefix("distribution.").removesuffix("_param")  # "std" or "log_std"
    actor[std] = actor.pop(param)
    if number == 4:
        data = {"actor_state_dict": actor, "critic_state_dict": critic}
    else:
        model = {std: actor.pop(std)}
        for who, part in (("actor", actor), ("critic", critic)):
            for name, value in part.items():
                old = name.replace("mlp.", f"{who}.")
                model[old.replace("obs_normalizer", f"{who}_obs_normalizer")] = value
        data = {"model_state_dict": model}
    torch.save(data | {"iter": 2, "infos": None, "optimizer_state_dict": {}}, path)
    return path


def test_actions_equal_those_of_rsl_rl():
    policy, (_, expected) = imported(CHECKPOINT), golden(FILE, "policy")
    assert_close(actions_of(policy, expected["observations"]), expected["actions"])
    state = policy.actor.state_dict()
    std = state["log_std"].exp() if "log_std" in state else state["std"]
    assert_close(std, expected["action_std"])
    assert read(CHECKPOINT).iteration == META["iter"]


@pytest.mark.parametrize("generation", [3, 4])
def test_an_older_generation_reads_as_the_newest_does(generation, tmp_path):
    new = read(CHECKPOINT)
    old = read(as_generation(generation, tmp_path / "model_2.pt"))
    assert (new.generation, old.generation) == ("5", str(generation))
    for mine, theirs in ((old.actor, new.actor), (old.critic, new.critic)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_normaliser_beside_the_model_as_in_2_x_is_found(tmp_path):
    path = as_generation(3, tmp_path / "model_2.pt")
    data = torch.load(path, weights_only=True)
    model = data["model_state_dict"]
    for who, key in (
        ("actor", "obs_norm_state_dict"),
        ("critic", "privileged_obs_norm_state_dict"),
    ):
        prefix = f"{who}_obs_normalizer."
        names = [name for name in model if name.startswith(prefix)]
        data[key] = {name.removeprefix(prefix): model.pop(name) for name in names}
    torch.save(data, path)
    assert torch.equal(
        read(path).critic["normalizer.mean"],
        read(CHECKPOINT).critic["normalizer.mean"],
    )


def rsl_rl_runner(log_dir, std_type="log", **networks):
    from rsl_rl.runners import OnPolicyRunner

    env = CorridorCfg(num_envs=4).build()
    model = {"hidden_dims": [16, 12], "activation": "elu", "obs_normalization": True} | networks
    gaussian = {"class_name": "GaussianDistribution", "init_std": 0.5, "std_type": std_type}
    kind = "RNNModel" if "rnn_type" in model else "MLPModel"
    cfg = {
        "actor": model | {"class_name": kind, "distribution_cfg": gaussian},
        "critic": model | {"class_name": kind},
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 2,
            "num_mini_batches": 2,
            "learning_rate": 1e-3,
            "rnd_cfg": None,
            "symmetry_cfg": None,
        },
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "num_steps_per_env": 8,
        "save_interval": 100,
        "run_name": "",
        "logger": "tensorboard",
    }
    return OnPolicyRunner(env, cfg, str(log_dir), "cpu"), env


def trained(memory: MemoryCfg | None = None, **changes) -> tuple[ActorCritic, PPO]:
    """Ours, after a rollout and an update in the corridor."""
    env = CorridorCfg(num_envs=4).build()
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL, memory=memory, **changes),
        critic_cfg=VNetworkCfg(backbone_cfg=SMALL, memory=memory),
    )
    torch.manual_seed(0)
    policy = pack.build(env.interface)
    generator = torch.Generator().manual_seed(0)
    algorithm = PPO(PPOCfg(num_mini_batches=2), policy, 4, 8, generator)
    observations = env.get_observations()
    for _ in range(8):
        actions = algorithm.act(observations)
        step = ControlStep.of(observations, actions, env.step(actions))
        algorithm.observe(step)
        observations = step.next_observations
    algorithm.update(observations)
    return policy.eval(), algorithm


@pytest.mark.parametrize("use_log_std", [True, False])
def test_rsl_rl_loads_what_is_written_acts_the_same_and_goes_on(use_log_std, tmp_path):
    policy, algorithm = trained(use_log_std=use_log_std)
    write(tmp_path / "model_7.pt", policy, 7, algorithm.state()[0])
    runner, env = rsl_rl_runner(tmp_path / "log", "log" if use_log_std else "scalar")
    runner.load(str(tmp_path / "model_7.pt"))
    assert runner.current_learning_iteration == 7
    observations = env.get_observations()
    theirs = runner.get_inference_policy()(observations)
    assert_close(ControlPolicy(policy.actor).act(observations), theirs.detach())
    value = runner.alg.critic(observations)
    assert_close(policy.critic(observations["critic"]), value)
    own = algorithm.actor_optimizer.state[policy.actor.backbone.layers[0].weight]["exp_avg"]
    theirs = runner.alg.optimizer.state[runner.alg.actor.mlp[0].weight]["exp_avg"]
    assert torch.equal(own, theirs)
    assert runner.alg.learning_rate == pytest.approx(algorithm.learning_rate.item())
    runner.learn(1)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_recurrent_policy_goes_there_and_back(kind, tmp_path):
    policy, algorithm = trained(MemoryCfg(kind=kind, hidden_size=6, num_layers=2))
    write(tmp_path / "model_1.pt", policy, 1, algorithm.state()[0])
    runner, env = rsl_rl_runner(tmp_path / "log", rnn_type=kind, rnn_hidden_dim=6, rnn_num_layers=2)
    runner.load(str(tmp_path / "model_1.pt"))
    deployed, theirs = ControlPolicy(policy.actor), runner.get_inference_policy()
    for _ in range(3):
        observations = env.get_observations()
        actions = deployed.act(observations)
        assert_close(actions, theirs(observations).detach())
        env.step(actions)
    found = read(tmp_path / "model_1.pt")
    pack = fitted(ActorCriticPackCfg(), found)
    assert pack.actor_cfg.memory == MemoryCfg(kind=kind, hidden_size=6, num_layers=2)
    back = pack.build(env.interface)
    back.load_state_dict(weights_of(found))
    for name, value in policy.state_dict().items():
        assert torch.equal(value, back.state_dict()[name]), name


def test_what_rsl_rl_does_not_have_is_refused_by_name(tmp_path):
    choice = ActorCriticPackCfg(actor_cfg=CategoricalActorCfg())
    policy = choice.build(Interface({"policy": 3}, num_actions=1, num_choices=2))
    with pytest.raises(ValueError, match="rsl_rl has no CategoricalActor"):
        write(tmp_path / "model.pt", policy, 0)
    squashed = MLPCfg(hidden_features=[8], activations=[[("ELU", {})], [("Tanh", {})]])
    pack = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(backbone_cfg=squashed))
    with pytest.raises(ValueError, match=r"actor_cfg\.backbone_cfg.* none after"):
        write(tmp_path / "model.pt", pack.build(Interface({"policy": 3}, num_actions=1)), 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pack", "name"),
    [
        (ActorCriticPackCfg(actor_cfg=CategoricalActorCfg()), "actor_cfg is CategoricalActorCfg"),
        (ActorCriticPackCfg(actor_cfg=LipsNetActorCfg()), "actor_cfg is LipsNetActorCfg"),
        (PopulationPackCfg(), "policy is PopulationPackCfg"),
    ],
)
def test_what_rsl_rl_does_not_have_is_not_imported_either(pack, name):
    with pytest.raises(ValueError, match=f"{name}, which rsl_rl does not have"):
        fitted(pack, read(CHECKPOINT))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_state_dict": [1]}, "model_state_dict is a list, expected a dict of tensors"),
        ({"actor_state_dict": None}, "actor_state_dict is a NoneType"),
        ({"critic_state_dict": {3: torch.ones(1)}}, "critic_state_dict has a Tensor under 3"),
        ({"actor_state_dict": {"std": 1.0}}, "actor_state_dict has a float under 'std'"),
        ({"actor_state_dict": {"std": torch.tensor([1, torch.inf])}}, "std of actor_state_dict ho"),
        ({"iter": None}, "iter is None, expected the number of iterations"),
    ],
)
def test_a_damaged_file_is_refused_by_the_name_of_what_is_wrong(changes, message, tmp_path):
    data = torch.load(CHECKPOINT, weights_only=True)
    torch.save(data | changes, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=rf"model\.pt: {message}"):
        read(tmp_path / "model.pt")


def test_other_files_are_refused_with_what_they_hold(tmp_path):
    torch.save({"student_state_dict": {}, "iter": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="holds iter, student_state_dict; expected"):
        read(tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"text.pt is not a torch checkpoint"):
        read(tmp_path / "text.pt")
    content = CHECKPOINT.read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cut.pt is not a torch checkpoint"):
        read(tmp_path / "cut.pt")


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    torch.save({"actor_state_dict": Path("/")}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="is not a torch checkpoint of tensors"):
        read(tmp_path / "model.pt")


def test_what_another_program_adds_to_the_file_is_refused_by_name(tmp_path):
    data = torch.load(CHECKPOINT, weights_only=True)
    trains = {"rnd_state_dict": {}, "rnd_optimizer_state_dict": {}}
    torch.save(data | trains, tmp_path / "rnd.pt")
    assert read(tmp_path / "rnd.pt").iteration == data["iter"]
    torch.save(data | {"estimator_state_dict": {}}, tmp_path / "estimator.pt")
    with pytest.raises(ValueError, match="holds estimator_state_dict, which rsl_rl does not write"):
        read(tmp_path / "estimator.pt")
    model = {"actor.0.weight": torch.zeros(2, 3), "std": torch.ones(2)}
    model |= {"critic.0.weight": torch.zeros(1, 3), "estimator.0.weight": torch.zeros(1, 3)}
    torch.save({"model_state_dict": model}, tmp_path / "old.pt")
    with pytest.raises(ValueError, match=r"has estimator\.0\.weight, which rsl_rl"):
        read(tmp_path / "old.pt")
