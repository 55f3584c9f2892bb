"""Learning from a dataset: it beats what was recorded, repeats, resumes, and refuses clearly."""

import dataclasses
import signal

import numpy as np
import pytest
import torch

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.transitions import read_transitions
from rrf.policies.control.normalizer import EmpiricalNormalizer
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.storage.replay import Transitions
from tests.algorithms.offline.corridor import ALGORITHMS, SCHEMA, record, run_cfg, walk
from tests.envs.toy import Corridor, CorridorCfg
from tests.runners.control.test_off_policy_runner import assert_same, everything


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return record(tmp_path_factory.mktemp("offline") / "walks")


def mean_return(path, num_envs: int = 64) -> float:
    """The mean return of the greedy policy in a checkpoint."""
    env = Corridor(CorridorCfg(num_envs=num_envs), seed=1)
    (policy, _), total = load_control_policy(path), 0.0
    observations = env.get_observations()
    for _ in range(env.max_episode_length):
        observations, rewards, _, _ = env.step(policy.act(observations))
        total += rewards.mean().item()
    return total


@pytest.mark.parametrize("name", ["iql", pytest.param("cql", marks=pytest.mark.slow), "td3_bc"])
def test_it_learns_more_than_was_recorded(tmp_path, dataset, name):
    recorded = read_transitions(dataset).returns.mean()
    assert -16 < recorded < -13
    result = run_cfg(name, dataset, max_iterations=6).build(tmp_path).run()
    # Walking straight there earns about -5, standing still -15.
    assert mean_return(result["checkpoint"]) > -8


def test_cloning_learns_the_mean_of_what_was_recorded(tmp_path, dataset):
    result = run_cfg("cloning", dataset).build(tmp_path).run()
    recorded = read_transitions(dataset).returns.mean()
    assert mean_return(result["checkpoint"]) == pytest.approx(recorded, abs=2)
    weights = checkpoint.read_weights(result["checkpoint"])
    assert all(name.startswith("actor.") for name in weights)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n == "cql" else []) for n in ALGORITHMS],
)
@pytest.mark.parametrize(
    "online", [0, pytest.param(2, marks=pytest.mark.slow)], ids=["offline", "online"]
)
def test_a_stopped_run_continues_bit_for_bit(tmp_path, dataset, name, online):
    if name == "cloning" and online:
        pytest.skip("imitates what was recorded; new transitions are not")
    cfg = run_cfg(name, dataset, online_iterations=online, max_iterations=4 if online else 3)
    whole = cfg.build(tmp_path / "whole").run()
    signals = SignalWatch()
    stopped = cfg.build(tmp_path / "stopped")
    update, calls = stopped.algorithm.make_updates, []

    def stop(count):
        calls.append(count)
        if len(calls) == 5:  # in the middle of an iteration of three calls
            signals.received = signal.SIGTERM
        return update(count)

    stopped.algorithm.make_updates = stop
    with pytest.raises(Interrupted):
        stopped.run(signals=signals)
    assert stopped.iteration == 1
    assert stopped.algorithm.num_updates == 220
    assert_same(everything(whole), everything(cfg.build(tmp_path / "stopped").run()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns_on_a_gpu(tmp_path, dataset, name):
    online = 0 if name == "cloning" else 1
    result = run_cfg(name, dataset, online_iterations=online, device="cuda").build(tmp_path).run()
    weights = checkpoint.read_weights(result["checkpoint"])
    assert all(torch.as_tensor(one).isfinite().all() for one in weights.values())


def test_online_iterations_add_transitions_and_keep_the_recorded_ones(tmp_path, dataset):
    runner = run_cfg("iql", dataset, online_iterations=1).build(tmp_path)
    recorded = runner.algorithm.replay.recorded.clone()
    mean = runner.policy.actor.normalizer.mean.clone()
    runner.run()
    replay = runner.algorithm.replay
    assert len(replay) - len(recorded) == 40
    assert torch.equal(replay.recorded, recorded)
    assert torch.equal(runner.policy.actor.normalizer.mean, mean)
    rows = torch.arange(len(replay))
    steps, discounts = replay.gather_n_step(rows, 1, 0.5)
    assert torch.equal(steps.rows[: len(recorded)], recorded)
    assert torch.equal(steps.rows[len(recorded) :], replay.new.rows[:40])
    assert torch.equal(discounts, 0.5 * (1 - steps.terminated))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_network_normalises_observations_by_those_of_the_dataset(tmp_path, dataset, name):
    runner = run_cfg(name, dataset).build(tmp_path)
    data = read_transitions(dataset)
    networks = runner.policy.modules()
    normalizers = [one for one in networks if isinstance(one, EmpiricalNormalizer)]
    assert normalizers
    for normalizer in normalizers:
        np.testing.assert_allclose(normalizer.mean, data.observations.mean(0), rtol=1e-5)
        np.testing.assert_allclose(normalizer.std, data.observations.std(0), rtol=1e-5)


def test_the_last_frame_is_a_transition_only_where_the_task_ended(tmp_path):
    rng = np.random.default_rng(0)
    timed_out = walk(rng, 0, length=4)
    ended = dataclasses.replace(timed_out, terminated=np.arange(4) == 3)
    write_dataset(tmp_path / "walks", SCHEMA, iter([timed_out, ended]))
    data = read_transitions(tmp_path / "walks")
    assert data.ended.tolist() == [False, False, True, False, False, False, True]
    assert data.terminated.tolist() == [False] * 6 + [True]
    np.testing.assert_array_equal(data.observations[:3], timed_out.state[:3])
    np.testing.assert_array_equal(data.next_observations[:3], timed_out.state[1:])
    np.testing.assert_allclose(data.returns, [timed_out.reward.sum()] * 2, rtol=1e-6)


def test_a_diverging_run_stops_and_says_what_to_lower(tmp_path, dataset):
    algorithm = ALGORITHMS["iql"][0].replace(critic_lr=1e30)
    runner = run_cfg("iql", dataset, algorithm=algorithm).build(tmp_path)
    with pytest.raises(ValueError, match=r"was saved yet\. If the dataset is correct"):
        runner.run()


def test_rewards_are_scaled_by_the_range_of_returns(tmp_path, dataset):
    data = read_transitions(dataset)
    runner = run_cfg("iql", dataset, scales_by_returns=True, reward_shift=-1.0).build(tmp_path)
    spread = data.returns.max() - data.returns.min()
    rewards = runner.algorithm.replay.recorded[:, 2]  # after the position and the action
    np.testing.assert_allclose(rewards, data.rewards * 1000 / spread - 1, rtol=1e-5)


def test_new_rewards_are_scaled_like_the_recorded_ones(tmp_path, dataset):
    changes = {"scales_by_returns": True, "reward_scale": 2.0, "reward_shift": -1.0}
    runner = run_cfg("iql", dataset, online_iterations=1, **changes).build(tmp_path)
    found, step = [], runner.env.step

    def watched(actions):
        output = step(actions)
        found.append(output[1].clone())
        return output

    runner.env.step = watched
    runner.run()
    new = runner.algorithm.replay.new
    spread = np.ptp(read_transitions(dataset).returns)
    got = Transitions(new.rows[: len(new)], new.layout).rewards
    np.testing.assert_allclose(got, torch.cat(found) * 2000 / spread - 1, rtol=1e-5)


def single_steps(folder, num_episodes: int = 20, is_terminated: bool = True):
    """What becomes of a D4RL file whose terminals are true in every row."""
    rng = np.random.default_rng(0)
    walks = [
        dataclasses.replace(walk(rng, index, length=1), terminated=np.array([is_terminated]))
        for index in range(num_episodes)
    ]
    write_dataset(folder / "walks", SCHEMA, iter(walks))
    return folder / "walks"


def test_episodes_of_a_single_step_are_named(tmp_path):
    dataset = single_steps(tmp_path)
    with pytest.raises(ValueError, match="most of the 20 episodes of"):
        run_cfg("iql", dataset, scales_by_returns=True).build(tmp_path / "scaled")
    with pytest.warns(UserWarning, match="look at terminals and timeouts; as it is, no action"):
        run_cfg("iql", dataset).build(tmp_path / "plain")


def test_episodes_of_which_nothing_is_learned_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    walks = [walk(rng, 0, length=6), walk(rng, 1, length=1), walk(rng, 2, length=1)]
    write_dataset(tmp_path / "walks", SCHEMA, iter(walks))
    with pytest.warns(UserWarning, match="2 of 3 episodes of .* have one frame and no end of the"):
        run_cfg("iql", tmp_path / "walks").build(tmp_path / "run")


def broken(tmp_path, **changes):
    """A dataset of one walk with these changes."""
    episode = dataclasses.replace(walk(np.random.default_rng(0), 0, length=4), **changes)
    schema = dataclasses.replace(
        SCHEMA, has_reward=episode.reward is not None, has_terminated=episode.terminated is not None
    )
    write_dataset(tmp_path / "walks", schema, iter([episode]))
    return tmp_path / "walks"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": None}, "has no next.reward.*write `reward: KEY` into its config"),
        ({"terminated": None}, "has no next.terminated.*write `terminated: KEY`"),
        (
            {"terminated": np.array([False, True, False, False])},
            "next.terminated is true at frame 1, but the episode has 4 frames",
        ),
        (
            {"action": np.array([[0.0], [2.5], [0.0], [0.0]], np.float32)},
            "action 0 of transition 1 of .* is 2.5, which is 2.5 times what Corridor allows",
        ),
    ],
    ids=["rewards", "terminations", "contradiction", "bounds"],
)
def test_datasets_that_cannot_be_learned_from_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run_cfg("iql", broken(tmp_path, **changes)).build(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates_per_iteration": 0}, "updates_per_iteration is 0, allowed: 1 or more"),
        ({"online_iterations": 5}, "online_iterations is 5, allowed: 0 to max_iterations"),
    ],
)
def test_impossible_runs_are_refused(dataset, changes, message):
    with pytest.raises(ValueError, match=message):
        run_cfg("iql", dataset, **changes)


def test_an_algorithm_and_a_policy_that_do_not_fit_are_named(tmp_path, dataset):
    iql, cql = ALGORITHMS["iql"], ALGORITHMS["cql"]
    with pytest.raises(ValueError, match="IQL needs a critic of states; use policies"):
        run_cfg("iql", dataset, policy=cql[1]).build(tmp_path)
    with pytest.raises(ValueError, match=r"TD3\+BC needs a deterministic policy"):
        run_cfg("td3_bc", dataset, policy=iql[1]).build(tmp_path)
