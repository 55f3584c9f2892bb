"""The vector environment: equal to Meta-World itself, reproducible, strict about its input."""

import numpy as np
import pytest

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.engine import TaskEngine
from rrf.envs.metaworld.env import Expert
from rrf.envs.metaworld.tasks import TASKS
from rrf.envs.vec_env import InitialState

NOW = slice(0, 18)
GOAL = slice(36, 39)


@pytest.fixture
def env():
    env = MetaWorldCfg(num_envs=3, chunk_length=2, cameras=[]).build()
    yield env
    env.close()


def random_chunks(num_chunks, num_envs, chunk_length, seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(-1, 1, (num_chunks, num_envs, chunk_length, 4)).astype(np.float32)


def make_reference(task, seed, index):
    """Meta-World's own environment, used as its documentation says."""
    import metaworld

    benchmark = metaworld.MT1(task, seed=seed)
    reference = benchmark.train_classes[task]()
    reference.set_task(benchmark.train_tasks[index])
    reference.reset()
    return reference


@pytest.mark.parametrize(
    ("task", "index"),
    [
        ("drawer-open-v3", 3),
        pytest.param("bin-picking-v3", 0, marks=pytest.mark.slow),
        pytest.param("pick-place-v3", 49, marks=pytest.mark.slow),
    ],
)
def test_stepping_equals_metaworlds_own_environment(task, index):
    check_equals_metaworld(task, index)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_stepping_any_task_equals_metaworlds_own_environment(task):
    check_equals_metaworld(task, index=17)


def check_equals_metaworld(task, index):
    reference = make_reference(task, 777, index)
    env = MetaWorldCfg(num_envs=2, chunk_length=1, max_episode_steps=40, cameras=[]).build()
    # The other slot runs the same task from another state: nothing of it may leak.
    env.reset([InitialState(task, 777, (index + 1) % 50), InitialState(task, 777, index)])
    expert, random = Expert(task), np.random.default_rng(5)
    num_actions = 0
    for _ in range(12):  # 60 control steps
        num_actions += 1
        action = expert.action(env.expert_observation(1))
        action[:3] = np.clip(action[:3] + random.normal(0, 0.3, 3), -1, 1)
        for _ in range(5):
            expected, reward, _, _, info = reference.step(action)
        other = random.uniform(-1, 1, 4)
        step = env.step(np.stack([other, action]).astype(np.float32)[:, None])
        ours = env.expert_observation(1)
        np.testing.assert_allclose(ours[NOW], expected[NOW], atol=1e-9, err_msg=task)
        np.testing.assert_allclose(ours[GOAL], expected[GOAL], atol=1e-9)
        np.testing.assert_allclose(step.reward[1], reward, rtol=1e-6)
        assert step.success[1] == bool(info["success"])
        qpos = env.full_state(1)[1 : 1 + reference.model.nq]  # after time
        np.testing.assert_allclose(qpos, reference.data.qpos, atol=1e-9)
        if step.terminated.any():
            break
    assert num_actions >= 5
    env.close()


@pytest.mark.slow
def test_expert_reaches_success_where_metaworld_reports_it():
    task = "window-open-v3"
    reference, expert = make_reference(task, 42, 2), Expert(task)
    env = MetaWorldCfg(num_envs=1, chunk_length=1, cameras=[]).build()
    env.reset([InitialState(task, 42, 2)])
    num_actions = 0
    while True:
        num_actions += 1
        action = expert.action(env.expert_observation(0))
        for _ in range(5):
            info = reference.step(action)[-1]
        step = env.step(action[None, None])
        assert bool(step.success[0]) == bool(info["success"])
        if step.terminated[0] or step.truncated[0]:
            break
    assert step.success[0]
    assert step.extras["log"] == {"episode/success": 1.0, "episode/steps": float(num_actions)}
    env.close()


@pytest.mark.slow
def test_initial_states_of_all_tasks_are_metaworlds_own():
    import pickle

    import metaworld

    for task in TASKS:
        expected = [
            pickle.loads(benchmark_task.data)["rand_vec"]
            for benchmark_task in metaworld.MT1(task, seed=4242).train_tasks
        ]
        ours = TaskEngine(task, action_repeat=5, cameras=[])._draw_vectors(4242)
        np.testing.assert_array_equal(ours, expected, err_msg=task)


def test_same_initial_state_gives_the_same_episode_whatever_ran_before(env):
    start = InitialState("plate-slide-v3", 42, 5)
    chunks = random_chunks(4, 3, 2)
    first = env.reset([start] * 3)
    assert np.array_equal(first.state, np.repeat(first.state[:1], 3, axis=0))
    states = [env.step(np.repeat(chunk[:1], 3, axis=0)).observation.state for chunk in chunks]
    env.reset([InitialState(task, 7, 1) for task in ("reach-v3", "plate-slide-v3", "hammer-v3")])
    env.step(chunks[0])
    again = env.reset([start], [2])
    assert np.array_equal(again.state[0], first.state[0])
    for chunk, expected in zip(chunks, states, strict=True):
        step = env.step(chunk[:1], [2])
        np.testing.assert_array_equal(step.observation.state[0], expected[0])
        np.testing.assert_array_equal(expected[1], expected[0])


def test_different_indices_and_seeds_give_different_starts(env):
    task = "reach-v3"
    starts = [InitialState(task, 42, 0), InitialState(task, 42, 1), InitialState(task, 43, 0)]
    env.reset(starts)
    goals = [tuple(env.expert_observation(slot)[GOAL]) for slot in range(3)]
    assert len(set(goals)) == 3


def test_full_state_continues_the_episode_exactly(env):
    import mujoco

    env.reset([InitialState("drawer-open-v3", 42, 0)], [0])
    env.step(random_chunks(1, 1, 2)[0], [0])
    state = env.full_state(0)
    engine = env._engine(InitialState("drawer-open-v3", 42, 0))
    data = mujoco.MjData(engine.model)
    mujoco.mj_setState(engine.model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(engine.model, data)
    np.testing.assert_array_equal(data.body("hand").xpos, env.expert_observation(0)[:3])


def test_chunking_changes_nothing_and_success_ends_a_chunk_early():
    task, start = "button-press-topdown-v3", InitialState("button-press-topdown-v3", 42, 0)
    single = MetaWorldCfg(num_envs=1, chunk_length=1, cameras=[]).build()
    single.reset([start])
    expert, actions, rewards = Expert(task), [], []
    while True:
        actions.append(expert.action(single.expert_observation(0)))
        step = single.step(actions[-1][None, None])
        rewards.append(float(step.reward[0]))
        if step.terminated[0]:
            break
    length = len(actions)
    chunk = np.concatenate([actions, np.zeros((3, 4))]).astype(np.float32)
    chunked = MetaWorldCfg(num_envs=1, chunk_length=length + 3, cameras=[]).build()
    chunked.reset([start])
    whole = chunked.step(chunk[None])
    assert whole.steps.tolist() == [length]
    assert whole.terminated.all()
    assert whole.success.all()
    assert not whole.truncated.any()
    np.testing.assert_allclose(whole.reward[0], sum(rewards), rtol=1e-5)
    np.testing.assert_array_equal(whole.observation.state, step.observation.state)
    np.testing.assert_array_equal(chunked.full_state(0), single.full_state(0))
    assert whole.extras["log"] == {"episode/success": 1.0, "episode/steps": float(length)}


def test_the_horizon_truncates_and_is_kept_apart_from_success():
    env = MetaWorldCfg(num_envs=2, chunk_length=2, max_episode_steps=3, cameras=[]).build()
    env.reset([InitialState("reach-v3", 42, 0), InitialState("door-open-v3", 42, 0)])
    still = np.zeros((2, 2, 4), np.float32)
    first = env.step(still)
    assert first.steps.tolist() == [2, 2]
    assert first.extras["final_obs"] is None
    assert first.extras["log"] == {}
    last = env.step(still)
    assert last.steps.tolist() == [1, 1]
    assert last.truncated.tolist() == [True, True]
    assert last.extras["time_outs"].tolist() == [True, True]
    assert not last.terminated.any()
    assert not last.success.any()
    np.testing.assert_array_equal(last.extras["final_obs"].state, last.observation.state)
    assert last.extras["final_obs"].instruction == last.observation.instruction
    assert last.extras["log"] == {"episode/success": 0.0, "episode/steps": 3.0}
    env.reset([InitialState("reach-v3", 42, 0)], [0])
    env.step(still[:1], [0])  # a reset slot steps again, alone


def test_a_task_may_have_a_shorter_horizon_of_its_own():
    horizons = {"reach-v3": 2}
    env = MetaWorldCfg(
        num_envs=2, chunk_length=3, max_episode_steps=4, cameras=[], horizons=horizons
    ).build()
    env.reset([InitialState("reach-v3", 42, 0), InitialState("door-open-v3", 42, 0)])
    step = env.step(np.zeros((2, 3, 4), np.float32))
    assert step.steps.tolist() == [2, 3]
    assert step.truncated.tolist() == [True, False]
    assert not step.terminated.any()
    with pytest.raises(ValueError, match="no Meta-World task 'reach-v'; did you mean 'reach-v3'"):
        env.cfg.replace(horizons={"reach-v": 2})
    with pytest.raises(ValueError, match=r"5 of reach-v3 must lie in 1\.\.4"):
        env.cfg.replace(horizons={"reach-v3": 5})


def test_last_images_are_black_if_nobody_wants_them():
    env = MetaWorldCfg(num_envs=2, max_episode_steps=4, image_size=16, draws_final=False).build()
    try:
        env.reset([InitialState(TASKS[0], 777, 0)] * 2)
        env.step(np.zeros((1, 2, 4)), env_ids=[1])
        step = env.step(np.zeros((2, 2, 4)))
        assert step.truncated.tolist() == [False, True]
        images = step.observation.images["corner2"]
        assert images[0].max() > 0
        assert images[1].max() == 0
    finally:
        env.close()


def test_actions_beyond_the_limits_are_clipped(env):
    start = [InitialState("reach-v3", 42, 0)]
    env.reset(start * 2, [0, 1])
    within = np.tile(np.array([1, -1, 1, -1], np.float32), (2, 1))
    step = env.step(np.stack([within, within * 7]), [0, 1])
    np.testing.assert_array_equal(step.observation.state[0], step.observation.state[1])


def test_state_is_hand_position_and_gripper_opening(env):
    observation = env.reset([InitialState("reach-v3", 42, 0)], [1])
    np.testing.assert_allclose(observation.state[0], [0.005, 0.6, 0.195, 1.0], atol=0.01)
    step = env.step(np.tile(np.array([0, 0, 1, 1], np.float32), (1, 2, 1)), [1])
    assert step.observation.state[0, 2] > observation.state[0, 2] + 0.02  # up
    assert step.observation.state[0, 3] < 0.9  # closing


@pytest.mark.slow
def test_no_more_engines_are_kept_than_asked_for():
    env = MetaWorldCfg(num_envs=1, max_engines=2, cameras=[]).build()
    first = env.reset([InitialState("reach-v3", 42, 3)])
    for task in ("push-v3", "pick-place-v3", "sweep-v3"):
        env.reset([InitialState(task, 42, 3)])
        assert len(env._engines) <= 2
    np.testing.assert_array_equal(env.reset([InitialState("reach-v3", 42, 3)]).state, first.state)
    env.close()


def test_an_engine_in_use_is_never_dropped():
    env = MetaWorldCfg(num_envs=3, max_engines=1, cameras=[]).build()
    env.reset([InitialState(task, 42, 0) for task in ("reach-v3", "push-v3", "sweep-v3")])
    step = env.step(np.zeros((3, 2, 4), np.float32))
    assert step.steps.tolist() == [2, 2, 2]
    env.close()


@pytest.mark.parametrize(
    ("initial_state", "message"),
    [
        (
            InitialState("drawer-opn-v3", 42, 0),
            "no Meta-World task 'drawer-opn-v3'; did you mean 'drawer-open-v3'?",
        ),
        (InitialState("reach-v3", 42, 50), "reach-v3 has no initial state 50; a seed has 50, "),
        (InitialState("reach-v3", 42, -1), "reach-v3 has no initial state -1"),
        (InitialState("reach-v3", -3, 0), "seed -3 of reach-v3 must lie in"),
    ],
)
def test_bad_initial_states_are_named_and_running_episodes_survive(env, initial_state, message):
    env.reset([InitialState("reach-v3", 42, 0)], [0])
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?")):
        env.reset([InitialState("push-v3", 42, 0), initial_state], [0, 1])
    assert env.step(np.zeros((1, 2, 4), np.float32), [0]).steps.tolist() == [2]


def test_bad_actions_are_refused_before_anything_moves(env):
    before = env.reset([InitialState("reach-v3", 42, i) for i in range(3)]).state
    bad = np.zeros((3, 2, 4), np.float32)
    bad[2, 1, 3] = np.nan
    with pytest.raises(ValueError, match=r"action of env 2, step 1, dimension 3 is nan"):
        env.step(bad)
    with pytest.raises(ValueError, match=r"shape \[3, 4\], expected \[B, H, A\] = \[3, 2, 4\]"):
        env.step(np.zeros((3, 4), np.float32))
    zeros = np.zeros((3, 2, 4), np.float32)
    np.testing.assert_array_equal(env.full_state(0), fresh_state(env))
    assert np.abs(env.step(zeros).observation.state - before).max() < 0.05


def fresh_state(env):
    other = MetaWorldCfg(num_envs=1, cameras=[]).build()
    other.reset([InitialState("reach-v3", 42, 0)])
    return other.full_state(0)


def test_slots_are_checked(env):
    zeros = np.zeros((1, 2, 4), np.float32)
    reach = InitialState("reach-v3", 42, 0)
    with pytest.raises(ValueError, match="env 1 has no episode yet; call reset first"):
        env.step(zeros, [1])
    with pytest.raises(ValueError, match="no env 3; there are 3, numbered from 0"):
        env.reset([reach], [3])
    with pytest.raises(ValueError, match=r"env_ids \[0, 0\] name a slot twice"):
        env.reset([reach, reach], [0, 0])
    with pytest.raises(ValueError, match="env_ids is empty"):
        env.reset([], [])
    with pytest.raises(ValueError, match="2 initial states for 3 slots"):
        env.reset([reach, reach])
    env.close()
    with pytest.raises(ValueError, match="closed"):
        env.reset([reach], [0])
    env.close()


def test_stepping_an_ended_episode_is_an_error():
    env = MetaWorldCfg(num_envs=1, max_episode_steps=2, cameras=[]).build()
    env.reset([InitialState("reach-v3", 42, 0)])
    zeros = np.zeros((1, 2, 4), np.float32)
    assert env.step(zeros).truncated.all()
    with pytest.raises(ValueError, match="the episode of env 0 has ended; reset it"):
        env.step(zeros)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_repeat": 3}, "action_repeat=3 must divide 80"),
        ({"cameras": ["corner5"]}, "no camera 'corner5'; did you mean 'corner"),
        ({"num_envs": 0}, "num_envs is 0, allowed: 1 or more"),
    ],
)
def test_bad_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        MetaWorldCfg(**changes)


@pytest.mark.slow
def test_an_episode_may_go_on_after_success():
    start = InitialState("reach-v3", 777, 0)
    outcomes = {}
    for ignores in (False, True):
        cfg = MetaWorldCfg(num_envs=1, cameras=[], ignore_terminations=ignores)
        env = cfg.build()
        env.reset([start])
        outcomes[ignores] = steps = []
        while not steps or not (steps[-1].terminated[0] or steps[-1].truncated[0]):
            actions = np.stack([env.expert_action(0)] * 2)[None]
            steps.append(env.step(actions))
        env.close()
    ended, went_on = outcomes[False], outcomes[True]
    assert ended[-1].terminated[0]
    assert went_on[-1].truncated[0]
    assert went_on[-1].success[0]
    assert sum(step.steps[0] for step in went_on) == 40
    for one, other in zip(ended[:-1], went_on, strict=False):  # the same episode until success
        np.testing.assert_array_equal(one.observation.state, other.observation.state)
        np.testing.assert_array_equal(one.extras["rewards"], other.extras["rewards"])
        assert one.reward == pytest.approx(one.extras["rewards"].sum(1))
    assert [step.success[0] for step in went_on[len(ended) - 1 :]] == [True] * (
        len(went_on) - len(ended) + 1
    )
