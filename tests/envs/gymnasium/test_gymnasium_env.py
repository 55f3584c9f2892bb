"""Gymnasium's tasks: the contract, exact continuation, rewards, hidden dimensions, bad tasks."""

import importlib.util
import json

import gymnasium
import numpy as np
import pytest
import torch

from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import EnvState
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from tests.envs.contract import assert_equal, check_contract, random_actions, trajectory

SAVED = (
    "CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1",
    "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "HalfCheetah-v5", "Hopper-v5",
    "Walker2d-v5", "Swimmer-v5", "Reacher-v5", "Pusher-v5", "Ant-v5", "Humanoid-v5",
    "HumanoidStandup-v5",
)  # fmt: skip
SPACES = gymnasium.spaces
BOX = SPACES.Box


class Broken(gymnasium.Env):
    """Ten steps an episode; `fault` says what it returns in the third step of environment 1."""

    observation_space = BOX(-1, 1, (2,))
    action_space = BOX(-1, 1, (1,))
    made = 0

    def __init__(self, fault=None, observation_space=None, action_space=None):
        self.fault, self.steps = fault, 0
        self.index, Broken.made = Broken.made, Broken.made + 1
        self.observation_space = observation_space or self.observation_space
        self.action_space = action_space or self.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action):
        self.steps += 1
        observation, reward = np.full(2, self.steps / 10), 1.0
        if self.steps == 3 and self.index == 1:
            if self.fault == "nan":
                observation[1] = np.nan
            elif self.fault == "width":
                observation = np.zeros(3)
            elif self.fault == "reward":
                reward = np.zeros(2)
            elif self.fault == "none":
                reward = None
            elif self.fault == "text":
                observation = np.array(["a", "b"])
            elif self.fault == "ends":
                return observation, reward, np.array([True, False]), False, {}
            elif self.fault == "never":
                return observation, reward, None, False, {}
        return observation, reward, self.steps == 10, False, {}


@pytest.fixture(autouse=True)
def _tasks(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    Broken.made = 0
    gymnasium.register("Broken-v0", entry_point=Broken, max_episode_steps=8)
    gymnasium.register("Endless-v0", entry_point=Broken)


def build(task, num_envs=2, seed=0, **fields):
    return GymnasiumEnvCfg(task=task, num_envs=num_envs, **fields).build(seed=seed)


@pytest.mark.parametrize("task", SAVED)
def test_it_obeys_the_contract_and_continues_bit_for_bit(task):
    check_contract(lambda: build(task, num_envs=3, seed=5))
    state = build(task).state()
    assert state is not None
    state.facts = json.loads(json.dumps(state.facts))  # what a checkpoint makes of it
    env = build(task, seed=1)
    env.load_state(state)
    runs = [trajectory(e, torch.Generator().manual_seed(0), 3) for e in (env, build(task))]
    assert_equal(*runs)


@pytest.mark.parametrize(
    "task", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
)
def test_it_continues_where_one_environment_was_just_reset_and_another_was_not(task):
    env = build(task, num_envs=3)
    generator = torch.Generator().manual_seed(0)
    env.step(random_actions(env, generator))
    env.episode_length_buf[1] = env.max_episode_length - 1
    assert env.step(random_actions(env, generator))[2].tolist() == [False, True, False]
    state = env.state()
    state.facts = json.loads(json.dumps(state.facts))
    other = build(task, num_envs=3, seed=1)
    other.load_state(state)
    for ours, theirs in zip(other.gym_envs, env.gym_envs, strict=True):
        found, expected = ours.unwrapped.state, theirs.unwrapped.state
        assert type(found) is type(expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
    runs = [trajectory(e, torch.Generator().manual_seed(1), 60) for e in (env, other)]
    assert_equal(*runs)


def test_a_simulator_that_takes_only_short_seeds():
    class Short(Broken):
        def reset(self, *, seed=None, options=None):
            self.random = np.random.RandomState(seed)
            return self.random.rand(2), {}

    gymnasium.register("Short-v0", entry_point=Short, max_episode_steps=8)
    shown = build("Short-v0", seed=3).get_observations()["policy"]
    expected = [np.random.RandomState(mixed_seed(3, index) % 2**32).rand(2) for index in range(2)]
    np.testing.assert_array_equal(shown.numpy(), np.float32(expected))


def test_steps_and_resets_are_those_of_the_task_itself():
    ours = build("Hopper-v5", num_envs=2, seed=3)
    theirs = [gymnasium.make("Hopper-v5") for _ in range(2)]
    expected = [env.reset(seed=mixed_seed(3, index))[0] for index, env in enumerate(theirs)]
    np.testing.assert_array_equal(ours.get_observations()["policy"].numpy(), np.float32(expected))
    generator, num_ended = torch.Generator().manual_seed(0), 0
    for _ in range(60):
        actions = random_actions(ours, generator)
        observations, rewards, dones, extras = ours.step(actions)
        finals = []
        for index, env in enumerate(theirs):
            observation, reward, terminated, truncated, _ = env.step(actions[index].numpy())
            assert rewards[index].item() == np.float32(reward)
            assert bool(dones[index]) == (terminated or truncated)
            if terminated or truncated:
                finals.append(observation)
                observation = env.reset()[0]
            np.testing.assert_array_equal(
                observations["policy"][index].numpy(), np.float32(observation)
            )
        if finals:
            num_ended += len(finals)
            np.testing.assert_array_equal(extras["final_obs"]["policy"].numpy(), np.float32(finals))
    assert num_ended >= 2


def test_a_time_limit_is_no_termination_and_a_termination_no_time_out():
    env = build("Pendulum-v1", max_episode_steps=5)
    for step in range(1, 6):
        _, _, dones, extras = env.step(torch.zeros(2, 1))
        assert dones.tolist() == extras["time_outs"].tolist() == [step == 5] * 2
    env = build("Broken-v0", max_episode_steps=10)  # terminates in its tenth step
    for _ in range(10):
        _, _, dones, extras = env.step(torch.zeros(2, 1))
    assert dones.tolist() == [True, True]
    assert extras["time_outs"].tolist() == [False, False]
    assert build("Broken-v0").max_episode_length == 8
    assert build("Endless-v0").max_episode_length == 2**31 - 1


def test_a_discrete_observation_is_one_hot_from_reset_to_the_end_of_the_episode():
    env = build("FrozenLake-v1", kwargs={"is_slippery": False})
    assert env.interface.observation_dims == {"policy": 16}
    assert env.get_observations()["policy"].argmax(-1).tolist() == [0, 0]
    right_down_down = [2, 1, 1]  # 0 -> 1 -> 5, a hole
    for action, cell in zip(right_down_down, (1, 0, 4), strict=True):
        observations, _, dones, extras = env.step(torch.full((2, 1), float(action)))
        assert observations["policy"].sum(-1).tolist() == [1, 1]
        assert observations["policy"].argmax(-1).tolist() == [cell, cell]
        if dones.any():
            assert extras["final_obs"]["policy"].argmax(-1).tolist() == [5, 5]


def test_an_observation_that_does_not_belong_to_its_space_is_named():
    space = SPACES.Dict({"at": BOX(0, 1, (2,))})
    with pytest.raises(ValueError, match=r"Broken-v0 returned an observation that cannot be flat"):
        build("Broken-v0", kwargs={"observation_space": space})


def test_hidden_dimensions_are_nowhere():
    env = build("Pendulum-v1", hidden=[2])
    whole = build("Pendulum-v1")
    assert env.interface.observation_dims == {"policy": 2}
    actions = torch.ones(2, 1)
    env.episode_length_buf = torch.tensor([199, 0])
    whole.episode_length_buf = torch.tensor([199, 0])
    found, _, _, extras = env.step(actions)
    expected, _, _, whole_extras = whole.step(actions)
    assert torch.equal(found["policy"], expected["policy"][:, :2])
    final = whole_extras["final_obs"]["policy"][:, :2]
    assert torch.equal(extras["final_obs"]["policy"], final)
    with pytest.raises(ValueError, match="dimension 3; an observation of Pendulum-v1 has 0 to 2"):
        build("Pendulum-v1", hidden=[3])
    with pytest.raises(ValueError, match="leaves none of the"):
        build("Pendulum-v1", hidden=[0, 1, 2])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "Broken-v0 returned nan in 'policy' of environment 1, dimension 1"),
        ("width", r"Broken-v0 returned an observation of shape \[3\] in environment 1, .*\[2\]"),
        ("reward", r"Broken-v0 returned a reward of shape \[2\] in environment 1, expected \[\]"),
        ("none", "Broken-v0 returned nan in 'rewards' of environment 1"),
        ("text", "Broken-v0 returned a value that is not a number .* in environment 1, exp"),
        ("ends", r"returned array\(.* for terminated or truncated in environment 1, expected True"),
        ("never", "returned None for terminated or truncated in environment 1, expected True"),
    ],
)
def test_what_a_task_must_not_return_is_named(fault, message):
    env = build("Broken-v0", kwargs={"fault": fault})
    env.step(torch.zeros(2, 1))
    env.step(torch.zeros(2, 1))
    with pytest.raises(ValueError, match=message):
        env.step(torch.zeros(2, 1))


class OlderReset(Broken):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Seedless(Broken):
    def reset(self):
        return np.zeros(2), {}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OlderReset, "reset of Odd-v0 returned ndarray, expected the 2 .* observation, info"),
        (Seedless, "reset of Odd-v0 takes no seed; Gymnasium defines"),
    ],
)
def test_a_reset_of_another_kind_is_explained(kind, message):
    gymnasium.register(id="Odd-v0", entry_point=kind)
    with pytest.raises(ValueError, match=message):
        build("Odd-v0")


def test_lengths_that_were_given_stay_the_callers():
    env, lengths = build("Pendulum-v1"), torch.tensor([3, 4])
    env.episode_length_buf = lengths
    env.step(torch.zeros(2, 1))
    assert lengths.tolist() == [3, 4]
    assert env.episode_length_buf.tolist() == [4, 5]


def test_unknown_tasks_and_arguments_get_the_closest_known_name():
    with pytest.raises(ValueError, match=r"no Gymnasium task 'HalfCheeta-v5'; did you mean 'HalfC"):
        build("HalfCheeta-v5")
    with pytest.raises(
        ValueError, match="Ant-v5 takes no argument 'healty_reward'; did you mean 'h"
    ):
        build("Ant-v5", kwargs={"healty_reward": 0.0})


def test_a_missing_simulator_says_how_to_install_it():
    if importlib.util.find_spec("Box2D"):
        pytest.skip("Box2D is installed")
    with pytest.raises(ImportError, match=r"LunarLander-v3 cannot be made.*gymnasium\[box2d\]"):
        build("LunarLander-v3")


def test_arguments_reach_the_task():
    env = build("Ant-v5", kwargs={"healthy_reward": 0.25})
    env.step(torch.zeros(2, 8))
    assert env.reward_terms()["reward_survive"].tolist() == [0.25, 0.25]


def test_reward_terms_add_up_to_the_reward():
    env = build("HalfCheetah-v5")
    assert env.reward_names == ["reward_forward", "reward_ctrl"]
    assert env.reward_terms() == {}
    _, rewards, _, _ = env.step(torch.full((2, 6), 0.5))
    terms = env.reward_terms()
    assert terms["reward_ctrl"].tolist() == pytest.approx([-0.15, -0.15])  # -0.1 * 6 * 0.5^2
    torch.testing.assert_close(sum(terms.values()), rewards)


@pytest.mark.parametrize("task", ["InvertedDoublePendulum-v5", "HumanoidStandup-v5"])
def test_what_the_tasks_terms_leave_of_the_reward_is_a_term(task):
    env = build(task)
    assert env.reward_names[-1] == "reward_rest"
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        _, rewards, _, _ = env.step(random_actions(env, generator))
        terms = env.reward_terms()
        assert list(terms) == env.reward_names
        assert (terms["reward_rest"].abs() > 1e-5).all()
        torch.testing.assert_close(sum(terms.values()), rewards)


class Bonus(Broken):
    """Tells a part of its reward, and hands out a bonus in the fifth step that it does not tell."""

    def step(self, action):
        observation, _, *ends, _ = super().step(action)
        info = {"reward_steps": 1.0, "reward_parts": {"steps": 1.0}}
        return observation, 11.0 if self.steps == 5 else 1.0, *ends, info


def test_what_a_task_of_ones_own_leaves_of_the_reward_is_a_term():
    gymnasium.register("Bonus-v0", entry_point=Bonus)
    env = build("Bonus-v0")
    assert env.reward_names == ["reward_steps", "reward_rest"]
    for step in range(1, 6):
        env.step(torch.zeros(2, 1))
        rest = 10.0 if step == 5 else 0.0
        assert env.reward_terms()["reward_rest"].tolist() == [rest, rest]


def test_seeds_differ_between_environments_and_runs():
    starts = [build("Hopper-v5", seed=seed).get_observations()["policy"] for seed in (0, 0, 1)]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert not torch.equal(starts[0][0], starts[0][1])


def test_a_resumed_run_begins_other_episodes_than_at_first():
    first = build("Hopper-v5").reset()[0]["policy"]
    resumed = [build("Hopper-v5") for _ in range(2)]
    for env in resumed:
        env.set_progress(1200, seed=7)
    one, two = (env.reset()[0]["policy"] for env in resumed)
    assert (one != first).any(dim=1).all()
    assert torch.equal(one, two)


def test_a_state_of_something_else_is_refused():
    state = build("Pendulum-v1", num_envs=3).state()
    with pytest.raises(ValueError, match=r"3 x Pendulum-v1, but this environment is 2 x Pendulum"):
        build("Pendulum-v1").load_state(state)
    with pytest.raises(ValueError, match="this environment is 3 x CartPole-v1"):
        build("CartPole-v1", num_envs=3).load_state(EnvState(state.tensors, state.facts))


def test_tasks_of_others_have_no_state():
    assert build("Broken-v0").state() is None


def test_seconds_between_actions_are_the_tasks_own():
    expected = {"CartPole-v1": 0.02, "Pendulum-v1": 0.05, "Acrobot-v1": 0.2, "HalfCheetah-v5": 0.05}
    found = {task: build(task).interface.step_dt for task in expected}
    assert found == pytest.approx(expected)


def test_an_ended_environment_can_be_looked_at_before_its_reset():
    env = build("Pendulum-v1", max_episode_steps=3)
    angles = []
    env.before_reset = lambda ended: angles.extend(
        env.gym_envs[i].unwrapped.state[0] for i in ended
    )
    for _ in range(3):
        _, _, _, extras = env.step(torch.zeros(2, 1))
    cosines = extras["final_obs"]["policy"][:, 0]
    assert cosines.tolist() == pytest.approx(np.cos(angles), abs=1e-6)


@pytest.mark.slow
def test_rsl_rls_own_runner_trains_on_it(tmp_path):
    from rsl_rl.runners import OnPolicyRunner

    env = build("InvertedPendulum-v5", num_envs=16)
    network = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu"}
    noise = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "log"}
    cfg = {
        "num_steps_per_env": 32,
        "save_interval": 1000,
        "logger": "tensorboard",
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"obs_normalization": True, "distribution_cfg": noise},
        "critic": network | {"obs_normalization": True},
        "algorithm": {
            "class_name": "PPO",
            "learning_rate": 1e-3,
            "schedule": "fixed",
            "num_learning_epochs": 5,
            "num_mini_batches": 4,
            "entropy_coef": 0.0,
        },
    }
    torch.manual_seed(0)
    runner = OnPolicyRunner(env, cfg, log_dir=str(tmp_path), device="cpu")
    runner.learn(25)
    policy = runner.get_inference_policy()
    env.reset()
    num_falls = 0
    for _ in range(100):
        with torch.no_grad():
            num_falls += int(env.step(policy(env.get_observations()))[2].sum())
    assert num_falls < 16  # in 1,600 steps; random actions fall 255 times
