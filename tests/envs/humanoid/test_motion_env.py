"""A G1 that tracks motion clips."""

import dataclasses

import numpy as np
import pytest
import torch

from rrf import workspace
from rrf.envs.humanoid import motions
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.motion_configs import MotionTrackingEnvCfg
from rrf.envs.humanoid.motion_env import AHEAD
from rrf.envs.motions import clip as clips
from tests.repository.structure import ROOT

pytest.importorskip("mjlab", reason="the robot's model is in mjlab's wheel")

WALK = str(ROOT / "configs/motions/g1-walk.npz")


def build(**changes):
    given = {"num_envs": 8, "physics": "fast", "num_threads": 0} | changes
    return MotionTrackingEnvCfg(**given).build(seed=3)


@pytest.fixture(scope="module")
def env():
    env = build(first_level=1.0)
    yield env
    env.close()


def random_actions(seed: int, num: int = 8):
    return 0.3 * torch.randn(num, 23, generator=torch.Generator().manual_seed(seed))


def test_robots_begin_on_the_clips_at_their_speed():
    env = build(num_envs=64, randomises=False)
    _, rewards, dones, extras = env.step(torch.zeros(64, 23))
    assert not dones.any()
    assert set(extras["measured"]) == set(env.cfg.measures)
    assert extras["measured"]["mpjpe"].max() < 30
    assert extras["measured"]["mpjpe"].mean() < 15
    assert extras["measured"]["velocity_error"].mean() < 0.25
    assert rewards.mean() > 0.15  # of 0.24
    env.close()


def test_what_is_seen_is_what_a_robot_measures_and_the_clip(env):
    observed, _ = env.reset()
    assert {name: group.shape[1] for name, group in observed.items()} == {
        "actor": 179,
        "critic": 179 + 15,
    }
    env._physics.qpos[:, :2] += 5.0  # nobody knows where he is
    env._physics.qvel[:, :2] += 0.5
    env.cfg = env.cfg.replace(randomises=False)
    before = env._compose()["actor"]
    env._physics.qpos[:, :2] -= 3.0
    env._physics.qvel[:, :2] -= 0.5
    assert np.array_equal(before, env._compose()["actor"])
    env.cfg = env.cfg.replace(randomises=True)
    frames, at = env._library.frames, env._frame_n
    default = env.robot.default_pose(env.robot.observed)
    shown = before[:, 7 + 69 : 7 + 69 + 69].reshape(8, 3, 23)
    for number, ahead in enumerate(AHEAD):
        np.testing.assert_allclose(
            shown[:, number], frames.joints_fc[at + ahead] - default, atol=1e-6
        )


def test_who_is_lost_begins_again_and_counts_where_he_began(env):
    env.reset()
    lost = 0
    for _ in range(80):
        observed, rewards, dones, extras = env.step(torch.full((8, 23), 4.0))
        assert rewards.isfinite().all()
        lost += int((dones & ~extras["time_outs"]).sum())
        assert all(group.isfinite().all() for group in observed.values())
    assert lost > 5
    falls = env._library.falls_b
    assert falls.sum() > 5 * 0.9
    drawn = env._library.draw(np.random.default_rng(0), 4000)
    often = np.bincount(env._library._bin_of_f[drawn], minlength=len(falls))
    assert often[falls > 0].mean() > 3 * often[falls == 0].mean()


def test_an_episode_ends_with_its_clip():
    env = build(clips=[WALK], randomises=False, episode_s=60.0)
    ended = 0
    for _ in range(20):
        env._frame_n[:] = env._library.ends(env._frame_n) - max(AHEAD) - 1
        _, _, dones, extras = env.step(torch.zeros(8, 23))
        assert dones.all()
        ended += int(extras["time_outs"].sum())
    assert ended > 120
    env.close()


def test_it_continues_bit_for_bit(env):
    env.reset()
    for step in range(30):
        env.step(random_actions(step))
    state, again = env.state(), build(first_level=1.0)
    again.load_state(state)
    for step in range(40):
        one, other = (each.step(random_actions(100 + step)) for each in (env, again))
        assert torch.equal(one[1], other[1])
        assert torch.equal(one[2], other[2])
        for name in one[0].keys():  # noqa: SIM118 (a TensorDict iterates over its rows)
            assert torch.equal(one[0][name], other[0][name])
    again.close()


def changed(tmp_path, **changes) -> str:
    path = tmp_path / "clip.npz"
    dataclasses.replace(clips.read(WALK), **changes).write(path)
    return str(path)


def test_clips_that_cannot_be_tracked_are_refused(tmp_path):
    with pytest.raises(ValueError, match="clips is empty; name motion clips"):
        build(clips=[])
    dog = str(ROOT / "configs/motions/go1-trot.npz")
    with pytest.raises(ValueError, match="is of another robot: this robot has a joint 'left_hip"):
        build(clips=[dog])
    walk = clips.read(WALK)
    jump = walk.joint_pos.copy()
    jump[100:, 3] += 2.0
    with pytest.raises(ValueError, match="jumps: joint 'left_knee_joint' moves"):
        build(clips=[changed(tmp_path, joint_pos=jump)])
    arrays = ("root_pos", "root_quat", "joint_pos")
    short = {name: getattr(walk, name)[:60] for name in arrays}
    with pytest.raises(ValueError, match=r"lasts 1\.18 s; to be tracked it must be longer than"):
        build(clips=[changed(tmp_path, **short)])


def test_the_clips_are_how_system_0_moves():
    system0 = workspace.shipped() / HumanoidCfg.system0
    for name, schedule in motions.MADE.items():
        there = clips.read(ROOT / f"configs/motions/{name}.npz")
        made = motions.recorded(name, schedule[:2], system0)
        num = 60  # later, another processor's rounding may have grown
        np.testing.assert_allclose(made.root_pos[:num], there.root_pos[:num], atol=0.01)
        np.testing.assert_allclose(made.joint_pos[:num], there.joint_pos[:num], atol=0.05)
        assert there.licence == "BSD-3-Clause"
