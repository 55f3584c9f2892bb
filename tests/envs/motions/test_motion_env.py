"""The robot in the simulator and the clip of it are seen alike."""

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from rrf.envs.control_env import MotionEnv
from rrf.envs.mjlab.configs import MotionEnvCfg
from rrf.envs.motions.clip import FRAME_PARTS, read
from rrf.presets import resolve
from rrf.runners.checkpoints.checkpoint import read_weights

CLIP = "configs/motions/go1-trot.npz"
AT = [100, 700, 1500]
SOME = ["joint_pos", "feet", "lin_vel"]


@pytest.fixture(scope="module", params=[list(FRAME_PARTS), SOME], ids=["every part", "some"])
def env(request):
    made = MotionEnvCfg(num_envs=len(AT), frame_parts=request.param).build(seed=0)
    yield made
    made.close()


def test_frames_of_a_state_of_the_clip_are_those_of_the_clip(env):
    assert isinstance(env, MotionEnv)
    clip = read(CLIP)
    origins = env.env.scene.env_origins.numpy()
    place = [clip.root_pos[AT] + origins, clip.root_quat[AT], clip.joint_pos[AT]]
    moves = [clip.root_lin_vel()[AT], clip.root_ang_vel()[AT], clip.joint_vel()[AT]]
    data = env.env.sim.data
    data.qpos[:] = torch.from_numpy(np.concatenate(place, 1)).float()
    data.qvel[:] = torch.from_numpy(np.concatenate(moves, 1)).float()
    env.env.sim.forward()
    seen = env.env.observation_manager.compute(update_history=True)["amp"]
    torch.testing.assert_close(seen, env.reference_frames()[0][AT], rtol=0, atol=1e-5)


def test_frames_follow_the_steps_and_their_ends(env):
    observations = env.reset()[0]
    assert torch.equal(env.frames(), observations["amp"])
    env.episode_length_buf = torch.tensor([0, env.max_episode_length - 1, 0])
    after, _, dones, extras = env.step(torch.zeros(len(AT), env.num_actions))
    assert dones.tolist() == [False, True, False]
    assert torch.equal(env.frames(), after["amp"])
    # The last frame moved on from the one before; the next episode began somewhere else.
    final, first = extras["final_obs"]["amp"][0], after["amp"][1]
    assert not torch.equal(final, first)
    joints = slice(0, env.pose_width)
    assert (final - observations["amp"][1])[joints].abs().max() < 0.2


def test_a_share_of_the_episodes_begins_in_states_of_the_clip():
    count, share = 200, 0.7
    env = MotionEnvCfg(num_envs=count, reference_init=share).build(seed=0)
    try:
        references, begun = env.reference_frames()[0], env.frames()
        nearest = torch.cdist(begun, references).amin(1)
        data, origins = env.env.scene["robot"].data, env.env.scene.env_origins
        places = (data.root_link_pos_w - origins)[:, :2]
    finally:
        env.close()
    of_clip = nearest < 0.01
    assert abs(of_clip.float().mean() - share) < 5 * (share * (1 - share) / count) ** 0.5
    assert (nearest[~of_clip] > 1).all()  # in the task's own pose, at rest
    assert places.abs().max() < 0.5  # where the task put it
    assert places.std() > 0.2


@pytest.mark.parametrize("parts", [[], ["feet"], ["joint_pos", "tail"]])
def test_parts_of_a_frame_are_known_and_begin_with_the_joints(parts):
    with pytest.raises(ValueError, match=r"frame_parts is .*, allowed: joint_pos, then"):
        MotionEnvCfg(frame_parts=parts)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_of_episodes_is_from_0_to_1(share):
    with pytest.raises(ValueError, match=f"reference_init is {share}, allowed: 0 to 1"):
        MotionEnvCfg(reference_init=share)


def test_a_clip_of_another_robot_is_refused(tmp_path):
    clip = read(CLIP)
    names = [f"left_{name}" for name in clip.joint_names]
    dataclasses.replace(clip, joint_names=names).write(tmp_path / "other.npz")
    cfg = MotionEnvCfg(num_envs=1, clips=[str(tmp_path / "other.npz")])
    with pytest.raises(ValueError, match=r"other\.npz is of another robot"):
        cfg.build()


@pytest.mark.slow
def test_a_walker_goes_on_with_a_style(tmp_path):
    few = ["env.num_envs=4", "max_iterations=1", "num_steps_per_env=4", "trackers=[]"]
    walker = resolve("go1-flat-ppo", few).build(tmp_path / "walker").save()
    runner = resolve("go1-flat-amp", [*few, f"init_from={walker}"]).build(tmp_path / "trot")
    own = runner.policy.state_dict()
    assert all(torch.equal(own[name], value) for name, value in read_weights(walker).items())
    assert 0 < runner.run()["metrics"]["amp/style_reward"] < 1
