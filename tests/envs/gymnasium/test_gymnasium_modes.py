"""Our environments beside Gymnasium's own vector environments: modes, seeds, masks, wrappers,
pictures, and the single environment."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import rrf.envs
from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg, SlowSensorEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg

MODES = list(AutoresetMode)
WAITING = [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]
SHORT = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=3, max_episode_steps=3)
ENVS = {
    "gymnasium": SHORT,
    "slow-sensors": SlowSensorEnvCfg(task="Pendulum-v1", num_envs=3, slow=[2], max_episode_steps=3),
    "envpool": EnvPoolEnvCfg(task="CartPole-v1", num_envs=3),
    "two-goals": TwoGoalsEnvCfg(num_envs=3),
    "mjlab": MjlabEnvCfg(
        task="Mjlab-Cartpole-Balance",
        num_envs=3,
        num_threads=0,
        overrides={"episode_length_s": 0.2},
    ),
}


def made(name: str, mode: AutoresetMode, **options):
    if name == "envpool":
        pytest.importorskip("envpool", exc_type=ImportError)
    return rrf.envs.as_gymnasium(ENVS[name], seed=5, autoreset_mode=mode, **options)


def twins(mode: AutoresetMode, task: str = "CartPole-v1", num_envs: int = 3):
    make = [lambda: gymnasium.make(task)] * num_envs
    mine = rrf.envs.as_gymnasium(task, num_envs=num_envs, autoreset_mode=mode)
    return mine, SyncVectorEnv(make, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [42, [7, 3, 11]], ids=["one", "each"])
def test_every_step_is_that_of_gymnasium_in_every_mode(mode, seed):
    mine, theirs = twins(mode)
    actions = np.random.default_rng(0).integers(0, 2, (150, 3))
    ended = np.zeros(3, bool)
    first, theirs_first = mine.reset(seed=seed), theirs.reset(seed=seed)
    assert np.array_equal(first[0], theirs_first[0])
    num_episodes = 0
    for action in actions:
        if mode is AutoresetMode.DISABLED and ended.any():
            masks = [{"reset_mask": ended.copy()} for _ in range(2)]
            again = [env.reset(options=o) for env, o in zip((mine, theirs), masks, strict=True)]
            assert np.array_equal(again[0][0], again[1][0])
        step, expected = mine.step(action), theirs.step(action)
        for value, wanted in zip(step[:4], expected[:4], strict=True):
            assert np.array_equal(value, wanted)
            assert value.dtype == wanted.dtype
        assert step[4].keys() == expected[4].keys()
        ended = step[2] | step[3]
        num_episodes += ended.sum()
    assert num_episodes > 10
    mine.close()
    theirs.close()


def test_the_first_state_for_a_seed_is_gymnasiums_own():
    single = gymnasium.make("HalfCheetah-v5")
    mine = rrf.envs.as_gymnasium("HalfCheetah-v5", num_envs=2)
    observations, _ = mine.reset(seed=123)
    for index in range(2):
        expected, _ = single.reset(seed=123 + index)
        assert np.array_equal(observations[index], expected.astype(np.float32))
    alone = rrf.envs.as_gymnasium_env("HalfCheetah-v5")
    assert np.array_equal(alone.reset(seed=123)[0], observations[0])
    for env in (single, mine, alone):
        env.close()


@pytest.mark.parametrize("name", ENVS)
def test_the_next_step_begins_the_next_episode(name):
    env = made(name, AutoresetMode.NEXT_STEP)
    env.action_space.seed(0)
    env.reset()
    last = None
    for _ in range(600):
        step = env.step(env.action_space.sample())
        ended = step[2] | step[3]
        if ended.any():
            last = step
            break
    assert last is not None
    assert "final_obs" not in last[4]
    rows = np.flatnonzero(ended)
    lengths = env.env.episode_length_buf.clone()
    begun = env.step(np.full_like(env.action_space.sample(), 1))
    assert (begun[1][rows] == 0).all()
    assert not (begun[2] | begun[3])[rows].any()
    assert not np.array_equal(begun[0][rows], last[0][rows])
    assert (env.env.episode_length_buf[rows] == 0).all()
    others = np.setdiff1d(np.arange(3), rows)
    assert (env.env.episode_length_buf[others] == lengths[others] + 1).all()
    step = env.step(env.action_space.sample())
    assert (env.env.episode_length_buf[rows] == 1).all()
    assert not np.array_equal(step[0][rows], begun[0][rows])
    env.close()


@pytest.mark.parametrize("name", ENVS)
def test_a_mask_resets_some_environments_and_no_other(name):
    env = made(name, AutoresetMode.DISABLED)
    env.action_space.seed(0)
    env.reset()
    before = env.step(env.action_space.sample())[0]
    mask = np.array([True, False, True])
    after, infos = env.reset(options={"reset_mask": mask})
    assert infos == {}
    assert np.array_equal(after[1], before[1])
    assert env.env.episode_length_buf.tolist() == [0, 1, 0]
    if name != "two-goals":  # which begins where it was, for a moment
        assert not np.array_equal(after[0], before[0])
    env.close()


def test_without_autoreset_an_episode_that_ended_has_to_be_reset():
    env = rrf.envs.as_gymnasium(SHORT, autoreset_mode="Disabled")
    env.reset(seed=1)
    for _ in range(3):
        last = env.step(np.zeros((3, 1)))
    assert last[3].all()
    with pytest.raises(ValueError, match="the episode of environment 0 has ended; begin the next"):
        env.step(np.zeros((3, 1)))
    env.reset(options={"reset_mask": np.array([True, True, False])})
    with pytest.raises(ValueError, match="the episode of environment 2 has ended"):
        env.step(np.zeros((3, 1)))
    env.reset()
    assert not env.step(np.zeros((3, 1)))[3].any()
    env.close()


def test_a_batch_takes_one_seed_and_no_options():
    env = made("mjlab", AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match="draw from one stream of random numbers; give all of the"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match=r"options are \['low'\], allowed: reset_mask"):
        env.reset(options={"low": 1})
    env.close()


def test_options_of_a_task_reach_its_reset():
    env = rrf.envs.as_gymnasium("CartPole-v1", num_envs=2)
    observations, _ = env.reset(seed=1, options={"low": 0.01, "high": 0.02})
    assert ((observations >= 0.01) & (observations <= 0.02)).all()
    env.close()


@pytest.mark.parametrize("name", ["gymnasium", "mjlab"])
def test_gymnasiums_wrappers_take_it(name):
    normalised = wrappers.NormalizeObservation(made(name, AutoresetMode.NEXT_STEP))
    normalised = wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(normalised))
    normalised.reset(seed=5)
    normalised.action_space.seed(0)
    seen = [normalised.step(normalised.action_space.sample())[0] for _ in range(40)]
    assert np.abs(np.mean(seen)) < 0.7
    assert normalised.observation_space.contains(seen[-1])
    normalised.close()
    for mode in WAITING:  # Gymnasium refuses SAME_STEP here
        groups = ["policy"] if name == "gymnasium" else ["actor", "critic"]
        flat = wrappers.FlattenObservation(made(name, mode, groups=groups))
        width = sum(flat.env.env.interface.observation_dims[group] for group in groups)
        observations, _ = flat.reset(seed=5)
        assert observations.shape == (3, width)
        for _ in range(3 if mode is AutoresetMode.DISABLED else 12):
            observations, *_ = flat.step(flat.action_space.sample())
            assert flat.observation_space.contains(observations)
        flat.close()


def test_bounds_are_those_of_the_task():
    env = rrf.envs.as_gymnasium("CartPole-v1", num_envs=2)
    assert env.single_observation_space == gymnasium.make("CartPole-v1").observation_space
    slow = rrf.envs.as_gymnasium(ENVS["slow-sensors"])
    low, high = slow.single_observation_space.low, slow.single_observation_space.high
    assert high.tolist() == [1.0, 1.0, 8.0, np.inf, 1.0, 1.0]
    assert low.tolist() == [-1.0, -1.0, -8.0, -np.inf, 0.0, 0.0]
    slow.action_space.seed(1)
    for _ in range(30):
        assert slow.observation_space.contains(slow.step(slow.action_space.sample())[0])
    hidden = GymnasiumEnvCfg(task="CartPole-v1", hidden=[0, 1])
    assert rrf.envs.as_gymnasium(hidden).single_observation_space.high[0] == np.float32(0.41887903)


def test_pictures_of_every_environment_are_drawn():
    env = rrf.envs.as_gymnasium("Pendulum-v1", num_envs=2, render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    assert [(frame.shape, frame.dtype) for frame in before] == [((240, 320, 3), np.uint8)] * 2
    assert not np.array_equal(*before)
    env.step(np.ones((2, 1)))
    assert not np.array_equal(before[0], env.render()[0])
    env.close()
    assert rrf.envs.as_gymnasium("Pendulum-v1", num_envs=2).render() is None
    with pytest.raises(ValueError, match="render_mode is 'human', allowed: rgb_array"):
        rrf.envs.as_gymnasium("Pendulum-v1", render_mode="human")


def test_the_spec_says_what_it_is_and_makes_it():
    env = rrf.envs.as_gymnasium(SHORT)
    assert (env.spec.id, env.spec.max_episode_steps) == ("Pendulum-v1", 3)
    single = env.spec.make(render_mode="rgb_array")
    single.reset(seed=0)
    assert single.render().shape == (240, 320, 3)
    assert single.unwrapped.vector.cfg == SHORT.replace(num_envs=1)
    robot = rrf.envs.as_gymnasium(ENVS["mjlab"])
    assert robot.spec.id == "Mjlab-Cartpole-Balance"
    for made_env in (env, single, robot):
        made_env.close()


def test_calls_and_attributes_reach_the_task():
    env = rrf.envs.as_gymnasium("Pendulum-v1", num_envs=3)
    assert env.call("g") == env.get_attr("g") == (10.0, 10.0, 10.0)
    env.set_attr("g", [9.0, 8.0, 7.0])
    assert env.get_attr("g") == (9.0, 8.0, 7.0)
    env.set_attr("g", 1.0, env_ids=[1])
    assert env.call("g", env_ids=[0, 1]) == (9.0, 1.0)
    assert env.call("get_wrapper_attr", "m") == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="2 values of g for 3 environments"):
        env.set_attr("g", [1.0, 2.0])
    robot = rrf.envs.as_gymnasium(ENVS["mjlab"])
    (step_dt,) = set(robot.get_attr("step_dt"))
    assert step_dt == robot.env.interface.step_dt
    assert robot.call("common_step_counter") == (0, 0, 0)  # mjlab's own
    with pytest.raises(AttributeError, match="Mjlab-Cartpole-Balance has no attribute 'nothing'"):
        robot.call("nothing")
    for made_env in (env, robot):
        made_env.close()


@pytest.mark.parametrize("name", ENVS)
def test_the_single_environment_passes_gymnasiums_checker(name):
    if name == "envpool":
        pytest.importorskip("envpool", exc_type=ImportError)
    env = rrf.envs.as_gymnasium_env(ENVS[name], seed=5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        env_checker.check_env(env, skip_render_check=name in ("envpool", "two-goals"))
    about_bounds = ("-infinity", "infinity", "normalized space", "symmetric")
    of_others = ResourceWarning  # what earlier tests left open is collected meanwhile
    said = [str(one.message) for one in told if not issubclass(one.category, of_others)]
    assert [text for text in said if not any(part in text for part in about_bounds)] == []
    env.close()
