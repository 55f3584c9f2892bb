"""Our environments as Gymnasium's vector environments: its rules, and a trainer that learns."""

import importlib.util
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

import rrf.envs
from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg

GO1 = MjlabEnvCfg(num_envs=4, num_threads=0)
ENVS = {
    "gymnasium": (GymnasiumEnvCfg(task="Pendulum-v1", num_envs=3), {}),
    "discrete": (GymnasiumEnvCfg(task="CartPole-v1", num_envs=3), {}),
    "two-goals": (TwoGoalsEnvCfg(num_envs=3), {}),
    "envpool": (EnvPoolEnvCfg(task="Pendulum-v1", num_envs=3), {}),
    "go1": (GO1, {}),
    "go1-groups": (GO1, {"groups": ["actor", "critic"]}),
}


@pytest.fixture(params=list(ENVS), scope="module")
def env(request):
    cfg, options = ENVS[request.param]
    if request.param == "envpool":
        pytest.importorskip("envpool", exc_type=ImportError)
    made = rrf.envs.as_gymnasium(cfg, seed=5, **options)
    yield made
    made.close()
    made.close()


def example(name: str):
    """A file of the guide to other trainers, as a module."""
    path = Path(__file__).parents[3] / "docs/how-to/other_trainers" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walked(env, num_steps: int = 6, seed: int | None = 5) -> list:
    """What a reset and some steps return."""
    env.action_space.seed(1)
    results = [env.reset(seed=seed)]
    return results + [env.step(env.action_space.sample()) for _ in range(num_steps)]


def same(first: list, second: list) -> bool:
    return all(env_checker.data_equivalence(a, b) for a, b in zip(first, second, strict=True))


def test_the_rules_of_a_vector_environment_hold(env):
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.observation_space == batch_space(env.single_observation_space, env.num_envs)
    assert env.action_space == batch_space(env.single_action_space, env.num_envs)
    if isinstance(env.single_observation_space, gymnasium.spaces.Box):
        env_checker.check_observation_space(env.single_observation_space)
    env_checker.check_action_space(env.single_action_space)
    observations, infos = env.reset(seed=5)
    assert env.observation_space.contains(observations)
    assert infos == {}
    assert env.np_random_seed == 5
    observations, rewards, terminations, truncations, infos = env.step(env.action_space.sample())
    assert env.observation_space.contains(observations)
    assert (rewards.shape, rewards.dtype) == ((env.num_envs,), np.float64)
    for ends in (terminations, truncations):
        assert (ends.shape, ends.dtype) == ((env.num_envs,), np.bool_)
    assert isinstance(infos, dict)


def test_a_seed_gives_the_same_episodes_and_returned_arrays_stay_as_they_are(env):
    first = walked(env)
    kept = [[np.copy(part) for part in step[1:4]] for step in first[1:]]
    assert same(first, walked(env))
    if env.cfg.task != "TwoGoals":  # it draws nothing
        assert not same(walked(env, seed=None), walked(env, seed=None))
        assert not same(first, walked(env, seed=6))
    assert same(kept, [list(step[1:4]) for step in first[1:]])


def test_episodes_end_as_in_gymnasiums_own_vector_environment():
    mine = rrf.envs.as_gymnasium("CartPole-v1", num_envs=2)
    make = [lambda: gymnasium.make("CartPole-v1")] * 2
    theirs = SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)
    ends = []
    for env in (mine, theirs):
        wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
        last, _ = wrapped.reset(seed=0)
        for _ in range(100):
            observations, _, terminations, _, infos = wrapped.step(np.ones(2, int))
            if terminations.any():
                break
            last = observations
        (index,) = np.flatnonzero(terminations)[:1]
        final = infos["final_obs"][index]
        assert abs(final[2]) > 0.2095  # it fell over; the new episode stands
        assert abs(observations[index][2]) < 0.06 < abs(last[index][2])
        assert infos["episode"]["r"][index] == infos["episode"]["l"][index] > 5
        ends.append((terminations, infos, final))
        env.close()
    (_, mine_infos, mine_final), (_, their_infos, their_final) = ends
    assert mine_infos.keys() == their_infos.keys()
    for name in mine_infos:
        assert type(mine_infos[name]) is type(their_infos[name]), name
        if isinstance(mine_infos[name], np.ndarray):
            assert mine_infos[name].dtype == their_infos[name].dtype, name
    assert (mine_final.shape, mine_final.dtype) == (their_final.shape, their_final.dtype)


def test_a_time_limit_is_a_truncation_and_a_fall_a_termination():
    short = GymnasiumEnvCfg(task="CartPole-v1", num_envs=2, max_episode_steps=3)
    env = rrf.envs.as_gymnasium(short)
    env.reset(seed=0)
    for step in range(1, 4):
        *_, terminations, truncations, infos = env.step(np.array([0, 1]))
        assert truncations.tolist() == [step == 3] * 2
        assert not terminations.any()
    assert infos["_final_obs"].tolist() == [True, True]
    assert env.observation_space.shape == (2, 4)
    env.close()


@pytest.mark.parametrize("env", ["go1", "go1-groups"], indirect=True)
def test_the_privileged_observations_of_a_robot_are_a_group(env):
    env.reset()
    space = env.single_observation_space
    wide = {name: box.shape[0] for name, box in getattr(space, "spaces", {}).items()}
    assert wide in ({}, env.env.interface.observation_dims)
    assert env.single_action_space.high.tolist() == [10.0] * 12
    env.env.episode_length_buf[:] = env.env.max_episode_length - 1
    *_, truncations, infos = env.step(np.zeros((4, 12), np.float32))
    assert truncations.all()
    (final, *_) = infos["final_obs"]
    parts = final if isinstance(final, dict) else {"actor": final}
    assert {name: part.shape for name, part in parts.items()} == {
        name: (env.env.interface.observation_dims[name],) for name in parts
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rrf.envs.as_gymnasium("CartPol-v1"), "did you mean 'CartPole-v1'"),
        (lambda: rrf.envs.as_gymnasium("CartPole-v1", groups=["critic"]), "no group of observatio"),
        (lambda: rrf.envs.as_gymnasium("Pendulum-v1", action_limit=0.0), "action_limit is 0.0, al"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_actions_and_options_are_named():
    env = rrf.envs.as_gymnasium("Pendulum-v1", num_envs=2)
    with pytest.raises(ValueError, match=r"actions have shape \[2, 3\], expected .*\[2, 1\]"):
        env.step(np.zeros((2, 3)))
    for mask in (np.zeros(2, bool), np.ones(3, bool), [True, False], np.ones(2)):
        with pytest.raises(ValueError, match=r"reset_mask is .*, allowed: a NumPy array, bool \[2"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        env.reset(seed=[1, 2, 3])
    env.close()


def test_a_trainer_that_knows_only_gymnasium_learns():
    env = rrf.envs.as_gymnasium("InvertedPendulum-v5", num_envs=16)
    curve = example("ppo.py").train(env, num_updates=15, num_steps=32, hidden=(32, 32))
    assert curve[0] < 12
    assert curve[-1] > 25


def test_stable_baselines3_reaches_the_tasks():
    sb3 = pytest.importorskip("stable_baselines3", reason="uv pip install stable-baselines3")
    env = rrf.envs.as_sb3("Pendulum-v1", num_envs=3, render_mode="rgb_array")
    env.seed(7)
    first = env.reset()
    (own,) = [gymnasium.make("Pendulum-v1").reset(seed=8)[0]]
    assert np.array_equal(first[1], own)
    assert env.render_mode == "rgb_array"
    assert [image.shape for image in env.get_images()] == [(240, 320, 3)] * 3
    assert env.render().shape[2] == 3  # all of them in one picture
    assert env.get_attr("g") == [10.0] * 3
    env.set_attr("g", 9.0, indices=[1])
    assert env.get_attr("g", [1, 2]) == [9.0, 10.0]
    assert env.env_method("get_wrapper_attr", "g", indices=1) == [9.0]
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False] * 3
    assert sb3.common.vec_env.VecNormalize(env).reset().shape == (3, 3)
    env.close()


@pytest.mark.slow
def test_stable_baselines3_learns():
    sb3 = pytest.importorskip("stable_baselines3", reason="uv pip install stable-baselines3")
    env = sb3.common.vec_env.VecMonitor(rrf.envs.as_sb3("InvertedPendulum-v5", num_envs=16))
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=256, learning_rate=1e-3, seed=0)
    returns = []
    for _ in range(2):
        model.learn(10_000, reset_num_timesteps=False)
        returns.append(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    assert returns[1] > 1.5 * returns[0]
    env.seed(3)
    first = env.reset()
    env.seed(3)
    assert np.array_equal(first, env.reset())
    env.close()
