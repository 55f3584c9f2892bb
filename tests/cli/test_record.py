"""`rrf data collect --policy`: what a policy does becomes a dataset that can be learned from."""

import h5py
import numpy as np
import pytest

from rrf.data.formats.d4rl import D4RLSource
from rrf.data.formats.minari import MinariSource
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.runners.checkpoints import checkpoint
from tests.cli.conftest import TINY_SAC
from tests.cli.test_bad_input import one_line

COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def recorded(home, *words: str, rrf) -> dict[str, np.ndarray]:
    out = home / "out.hdf5"
    assert rrf("data", "collect", "--policy", *words, "--out", str(out)).code == 0
    with h5py.File(out) as file:
        return {name: file[name][()] for name in COLUMNS}


def check_time(found: dict[str, np.ndarray]) -> None:
    """Within an episode, each observation is the one that the step before led to."""
    ended = found["terminals"] | found["timeouts"]
    assert ended[-1]
    goes_on = np.flatnonzero(~ended)
    np.testing.assert_array_equal(
        found["next_observations"][goes_on], found["observations"][goes_on + 1]
    )


def test_random_actions_span_the_range_of_the_task(rrf, home):
    found = recorded(home, "random", "--tasks", "Pendulum-v1", "--steps", "3200", rrf=rrf)
    check_time(found)
    assert found["actions"].shape == (3200, 1)
    assert -2 <= found["actions"].min() < -1.99 < 1.99 < found["actions"].max() <= 2
    # Eight environments with episodes of 200 steps.
    assert np.flatnonzero(found["timeouts"]).tolist() == list(range(199, 3200, 200))
    assert not found["terminals"].any()
    source = D4RLSource(home, {})
    (recording,) = source.recordings()
    assert recording.num_episodes == 16


def test_terminations_are_told_apart_from_the_time_limit(rrf, home):
    words = ("random", "--tasks", "InvertedPendulum-v5", "--steps", "800")
    found = recorded(home, *words, rrf=rrf)
    check_time(found)
    assert found["terminals"].sum() > 50
    assert not (found["terminals"] & found["timeouts"]).any()
    assert 1 <= found["timeouts"].sum() <= 8  # of the last step of each environment
    fallen = np.abs(found["next_observations"][found["terminals"]][:, 1])
    assert (fallen > 0.2).all()


def test_a_policy_and_the_replay_of_its_training_are_recorded(rrf, home):
    path = rrf("train", *TINY_SAC).checkpoint
    greedy = recorded(home, str(path), "--greedy", "--steps", "40", rrf=rrf)
    again = recorded(home, str(path), "--greedy", "--steps", "40", rrf=rrf)
    sampled = recorded(home, str(path), "--steps", "40", rrf=rrf)
    check_time(sampled)
    for name in COLUMNS:
        np.testing.assert_array_equal(greedy[name], again[name])
    assert (greedy["actions"] != sampled["actions"]).any()
    replay = recorded(home, str(path), "--replay", rrf=rrf)
    check_time(replay)
    rows = checkpoint.load_trainer_state(path).tensors["replay/rows"].numpy()
    np.testing.assert_array_equal(replay["observations"], rows[:, :3])
    np.testing.assert_allclose(replay["actions"], 2 * rows[:, 3:4], rtol=1e-6)
    np.testing.assert_array_equal(replay["rewards"], rows[:, 4])


def test_a_simulator_that_has_a_recorder_writes_the_file_itself(rrf, home, monkeypatch):
    path, out, files = rrf("train", *TINY_SAC).checkpoint, home / "own.hdf5", []
    monkeypatch.setattr(GymnasiumEnvCfg, "has_recorder", True)
    monkeypatch.setattr(
        GymnasiumEnvCfg,
        "with_recorder",
        lambda cfg, file: files.append((file, cfg.task, cfg.num_envs)) or cfg,
    )
    words = ("data", "collect", "--policy", str(path), "--out", str(out))
    said = rrf(*words, "--steps", "1600")  # eight environments with episodes of 200 steps
    assert "8 episodes, 8 up to their time limit, in " in said.out
    assert files == [(out, "Pendulum-v1", 8)]
    assert not out.exists()
    said = rrf(*words, "--tasks", "Pendulum-v1,Hopper-v5")
    assert "--tasks names 2 tasks, but a file has one; give one" in one_line(said)
    assert rrf(*words, "--replay").code == 0
    assert out.exists(), "what the training has observed is not for the simulator to write"


def test_a_policy_is_recorded_in_another_task_that_it_fits(rrf, home):
    tiny = ("trackers=[]", "max_iterations=1", "num_steps_per_env=8", "env.num_envs=2")
    path = rrf("train", "--task", "InvertedPendulum-v5", "--algorithm", "ppo", *tiny).checkpoint
    words = ("data", "collect", "--policy", str(path), "--steps", "80")
    assert rrf(*words, "--tasks", "InvertedPendulum-v4").code == 0
    assert (home / "datasets/raw/InvertedPendulum-v4.hdf5").exists()
    said = one_line(rrf(*words, "--tasks", "Pendulum-v1"))
    assert "was trained with observation_dims {'policy': 4}, but Pendulum-v1 now has" in said
    said = one_line(rrf(*words, "--tasks", "InvertedPendulum-v4", "--replay"))
    assert "a replay is of the task of its training; leave --tasks out" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("random",), "random actions need one task: --policy random --tasks Hopper-v5"),
        (("random", "--tasks", "CartPole-v1"), "CartPole-v1 has 2 discrete actions"),
        (("random", "--tasks", "Pendulum-v1", "--replay"), "random actions have no replay"),
        (("random", "--tasks", "Pendulum-v1", "--steps", "0"), "--steps is 0, allowed: 1 or more"),
    ],
)
def test_what_cannot_be_recorded_is_named(rrf, home, words, message):
    said = rrf("data", "collect", "--policy", *words, "--out", str(home / "out.hdf5"))
    assert message in one_line(said)
    assert not (home / "out.hdf5").exists()


def test_minari_reads_what_was_recorded_for_it(rrf, home, monkeypatch):
    minari = pytest.importorskip("minari")
    words = ("--policy", "random", "--tasks", "InvertedPendulum-v5", "--steps", "400")
    assert rrf("data", "collect", *words, "--out", str(home / "toy-random-v0")).code == 0
    flat = recorded(home, *words[1:], rrf=rrf)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home))
    dataset = minari.load_dataset("toy-random-v0")
    episodes = list(dataset.iterate_episodes())
    stops = np.flatnonzero(flat["terminals"] | flat["timeouts"]) + 1
    assert [len(e.rewards) for e in episodes] == np.diff([0, *stops]).tolist()
    for column, name in (("actions", "actions"), ("rewards", "rewards")):
        np.testing.assert_allclose(
            np.concatenate([getattr(e, name) for e in episodes]), flat[column], rtol=1e-6
        )
    for name, column in (("terminations", "terminals"), ("truncations", "timeouts")):
        joined = np.concatenate([getattr(e, name) for e in episodes])
        np.testing.assert_array_equal(joined, flat[column])
    joined = np.concatenate([e.observations[:-1] for e in episodes])
    np.testing.assert_array_equal(joined, flat["observations"])
    joined = np.stack([e.observations[-1] for e in episodes])
    np.testing.assert_array_equal(joined, flat["next_observations"][stops - 1])
    assert dataset.action_space.high == pytest.approx([3.0])
    # and so do we
    source = MinariSource(home / "toy-random-v0", {})
    (recording,) = source.recordings()
    assert recording.num_episodes == len(episodes)
    ours = list(source.episodes(recording, ("observations", "terminations")))
    found = np.concatenate([e.arrays["observations"] for e in ours])
    np.testing.assert_array_equal(found, flat["observations"])
    again = rrf("data", "collect", *words, "--out", str(home / "toy-random-v0"))
    assert "exists; remove it, or choose another name with --out" in one_line(again)


def test_a_task_with_goals_is_recorded_for_minari_in_its_parts(rrf, home, monkeypatch):
    """By our controller, below a relative path; and read from there, goals first."""
    minari = pytest.importorskip("minari")
    gymnasium_robotics = pytest.importorskip("gymnasium_robotics")
    monkeypatch.chdir(home)
    words = ("maze", "--tasks", "PointMaze_UMaze-v3", "--steps", "2400")
    flat = recorded(home, *words, rrf=rrf)
    check_time(flat)
    out = "toys/maze-v0"
    assert rrf("data", "collect", "--policy", *words, "--out", out).code == 0
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home / "toys"))
    episodes = list(minari.load_dataset("maze-v0").iterate_episodes())
    assert [len(e.rewards) for e in episodes] == [300] * 8
    task = gymnasium_robotics.envs.maze.point_maze.PointMazeEnv()
    for episode in episodes:
        seen = episode.observations
        rewards = task.compute_reward(seen["achieved_goal"][1:], seen["desired_goal"][1:], {})
        np.testing.assert_array_equal(rewards, episode.rewards)
    task.close()
    parts = [f"observations/{n}" for n in ("achieved_goal", "desired_goal", "observation")]
    source = MinariSource(home / "toys", {})
    (recording,) = source.recordings()
    ours = list(source.episodes(recording, (*parts, "rewards")))
    found = np.concatenate([np.concatenate([e.arrays[p] for p in parts], 1) for e in ours])
    np.testing.assert_array_equal(found, flat["observations"])
    # half of the time it goes somewhere else, and it reaches its goal all the same
    assert np.mean([e.arrays["rewards"].any() for e in ours]) > 0.8


def test_the_controller_of_mazes_says_what_it_walks_in(rrf, home):
    words = ("data", "collect", "--policy", "maze", "--steps", "20", "--out", "out.hdf5")
    said = rrf(*words, "--tasks", "Pendulum-v1")
    assert "cannot walk in Pendulum-v1; give it a PointMaze: --policy maze" in one_line(said)
    assert "walks through a maze need one task: --policy maze --tasks PointMaz" in one_line(
        rrf(*words)
    )


def test_a_name_that_minari_does_not_take_is_refused(rrf, home):
    words = ("--policy", "random", "--tasks", "Pendulum-v1", "--steps", "200")
    said = rrf("data", "collect", *words, "--out", str(home / "toy"))
    assert "Minari does not take the name toy; end it with a version" in one_line(said)
    assert not (home / "toy").exists()


def test_a_run_without_a_replay_says_so(rrf, home):
    tiny = ("trackers=[]", "max_iterations=1", "num_steps_per_env=8", "env.num_envs=2")
    path = rrf("train", "--task", "Pendulum-v1", "--algorithm", "ppo", *tiny).checkpoint
    said = rrf("data", "collect", "--policy", str(path), "--replay", "--out", "out.hdf5")
    assert "has no replay of transitions; give a checkpoint of SAC" in one_line(said)
