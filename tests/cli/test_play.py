"""`rrf play` of state-based policies: numbers, videos, the viewer, versions of the registry."""

import json
import shutil
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from rrf import atomic
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.envs.rendering.viewer import PassiveViewer, copy_pose
from tests.cli.conftest import TINY_PPO, TINY_SAC


def frames_of(video: Path) -> np.ndarray:
    import av

    with av.open(str(video)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_playing_tells_episodes_returns_and_lengths(rrf):
    checkpoint = rrf("train", *TINY_SAC).checkpoint
    said = rrf("play", checkpoint, "--num-envs", "3", "--seconds", "20")
    # Pendulum acts every 0.05 s and its episodes have 200 steps
    assert (
        f"{checkpoint.parent.name}/{checkpoint.name}: 3 environments, 400 steps (20.0 s), 6 episo"
        in said.out
    )
    assert "length 200, reward per step -" in said.out
    again = rrf("play", checkpoint.parent, "--num-envs", "3", "--steps", "400")
    assert again.out == said.out  # greedy, from the same seed
    short = rrf("play", checkpoint, "--steps", "5")
    assert "4 environments, 5 steps (0.2 s), no episode ended, reward per step -" in short.out


def test_a_program_may_ask_for_the_outcome(rrf, home):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    assert rrf("play", checkpoint, "--steps", "5", "--result-file", "outcome.json").code == 0
    assert json.loads((home / "outcome.json").read_text())["exit_code"] == 0


def test_a_video_shows_the_environments_side_by_side(rrf, home):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    said = rrf("play", checkpoint, "--num-envs", "2", "--steps", "20", "--video", "out.mp4")
    assert said.lines[-1] == "video out.mp4"
    frames = frames_of(home / "out.mp4")
    # 20 steps of 0.02 s are 10 frames at 25 a second; two pictures of 240 x 320, captions of 18
    assert frames.shape == (10, 258, 640, 3)
    assert (frames[0] != frames[-1]).any()


def test_a_mujoco_task_is_drawn(rrf, home):
    said = rrf("train", "inverted-pendulum-ppo", *TINY_PPO[1:])
    rrf("play", said.checkpoint, "--num-envs", "1", "--steps", "4", "--video", "out.mp4")
    # its steps take 0.04 s, so all four are drawn
    assert frames_of(home / "out.mp4").shape == (4, 258, 320, 3)


def test_the_viewer_shows_the_pose_of_the_environment():
    env = GymnasiumEnvCfg(task="InvertedPendulum-v5").build(seed=3)
    env.step(torch.tensor([[0.7]]))
    (data,) = env.mj_datas([0])
    shown = mujoco.MjData(env.mj_model)
    before = shown.geom_xpos.copy()
    copy_pose(env.mj_model, data, shown)
    mujoco.mj_forward(env.mj_model, data)
    np.testing.assert_array_equal(shown.geom_xpos, data.geom_xpos)
    assert (shown.geom_xpos != before).any()
    env.close()


def test_the_viewer_needs_a_display_and_says_so(rrf, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    said = rrf("play", checkpoint, "--viewer")
    assert said.code == 2
    assert said.err.startswith("error: --viewer opens a window, but there is no display here")
    assert said.err.count("\n") == 1


def test_the_viewer_shows_mujoco_only():
    env = GymnasiumEnvCfg(task="CartPole-v1").build()
    with pytest.raises(ValueError, match=r"CartPole-v1 is not stepped by MuJoCo's C library"):
        PassiveViewer(env)


def test_options_that_exclude_each_other_are_refused(rrf):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    said = rrf("play", checkpoint, "--steps", "5", "--seconds", "1")
    assert "error: --steps and --seconds both set the length" in said.err
    said = rrf("play", checkpoint, "--viewer", "--video", "a.mp4")
    assert "error: --viewer and --video exclude each other" in said.err


def test_options_of_vla_policies_are_refused_with_those_that_apply(rrf, home):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    said = rrf("play", checkpoint, "--size", "192", "--task", "drawer-open-v3")
    assert said.code == 2
    assert "error: --task, --size: " in said.err
    assert "state-based policy, which takes --video, --seed, --num-envs, --viewer" in said.err
    said = rrf("play", checkpoint, "--steps", "4", "--out", "a.mp4")
    assert said.lines[-1] == "video a.mp4"
    assert (home / "a.mp4").is_file()


def test_times_and_videos_that_cannot_be_are_refused(rrf, home):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    for seconds in ("0", "-3", "nan", "inf"):
        said = rrf("play", checkpoint, "--seconds", seconds)
        assert said.code == 2
        assert f"error: --seconds is {seconds}, allowed: more than 0" in said.err
    for name in ("x.txt", "x.avi", "x"):
        said = rrf("play", checkpoint, "--steps", "4", "--video", name)
        assert said.code == 2
        assert f"error: --video {name}: videos are written as MP4; give a name that" in said.err
    (home / "clips.mp4").mkdir()
    said = rrf("play", checkpoint, "--steps", "4", "--video", "clips.mp4")
    assert said.code == 2
    assert "'clips.mp4' is a directory" in said.err


def test_an_environment_that_has_changed_since_is_refused(rrf):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    changed = checkpoint.parent / "global_step_9"
    shutil.copytree(checkpoint, changed)
    config = (changed / "config.yaml").read_text().replace("CartPole-v1", "Acrobot-v1")
    (changed / "config.yaml").write_text(config)
    manifest = json.loads((changed / "manifest.json").read_text())
    atomic.write_manifest(changed, **{k: v for k, v in manifest.items() if k != "files"})
    said = rrf("play", changed)
    assert said.code == 2
    assert "observation_dims {'policy': 4}, but Acrobot-v1 now has {'policy': 6}" in said.err


@pytest.mark.slow
def test_a_registered_version_plays_by_its_name(rrf):
    words = [word for word in TINY_PPO if not word.startswith("trackers")]
    trained = rrf("train", *words, "trackers=[mlflow]")
    registered = rrf("models", "register", trained.checkpoint, "pole")
    assert "pole version 1 is @candidate" in registered.out, registered.err
    said = rrf("play", "models:/pole@candidate", "--steps", "10")
    assert said.lines[:2] == [
        "looking up models:/pole@candidate in the registry",
        "playing pole version 1 on cpu: no --video",
    ]
    assert said.lines[2].startswith("pole version 1: 4 environments, 10 steps"), said.err
