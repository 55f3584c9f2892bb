"""Motion clips in the form in which mjlab's tracking tasks read them."""

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from rrf.envs.mjlab.configs import MjlabEnvCfg, TrackingEnvCfg
from rrf.envs.mjlab.tracking_env import write_motion
from rrf.envs.motions.clip import quat_of_rotation_vector
from tests.envs.motions import quadruped


def test_bodies_move_as_the_clip_says(tmp_path):
    # The robot flies to the left of the world at 1 m/s and turns to the left at 2 rad/s.
    angle = np.arange(6) / 50 * 2.0
    still = np.zeros(6)
    clip = quadruped.clip(
        6,
        root_pos=np.stack([still, np.arange(6) / 50, still + 0.5], 1),
        root_quat=quat_of_rotation_vector(np.stack([still, still, angle], 1)),
    )
    write_motion(clip, quadruped.rig().model, tmp_path / "motion.npz")
    motion = np.load(tmp_path / "motion.npz")
    assert motion["body_pos_w"].shape == (6, 13, 3)  # the base and three bodies of each leg
    assert motion["joint_pos"].shape == motion["joint_vel"].shape == (6, 12)
    np.testing.assert_allclose(motion["body_pos_w"][:, 0], clip.root_pos)
    np.testing.assert_allclose(motion["body_quat_w"][:, 0], clip.root_quat)
    np.testing.assert_allclose(
        motion["body_ang_vel_w"][2], np.tile([0, 0, 2.0], (13, 1)), atol=1e-6
    )
    # The front right hip lies at (0.2, -0.05): at the start, turning adds 2 x (0.05, 0.2) m/s.
    got = motion["body_lin_vel_w"][0, 1]
    np.testing.assert_allclose(got, [0.1, 1.4, 0.0], atol=0.02)


def test_a_clip_of_another_robot_is_refused(tmp_path):
    names = [f"left_{name}" for name in quadruped.JOINTS]
    clip = dataclasses.replace(quadruped.clip(), joint_names=names)
    with pytest.raises(ValueError, match="is of another robot"):
        write_motion(clip, quadruped.rig().model, tmp_path / "motion.npz")


@pytest.mark.parametrize(
    ("field", "column", "by", "message"),
    [
        ("joint_pos", 4, 1.2, r"jumps: joint 'FL_thigh_joint' moves 1.20 rad from frame 2 to 3"),
        ("root_pos", 0, 0.3, r"jumps: the base moves 0.30 m from .*15 m/s, allowed: up to 12"),
    ],
)
def test_a_motion_with_a_jump_is_refused(field, column, by, message, tmp_path):
    moved = getattr(quadruped.clip(), field).copy()
    moved[3:, column] += by
    quadruped.clip(**{field: moved}).write(tmp_path / "jump.npz")
    with pytest.raises(ValueError, match=message):
        TrackingEnvCfg(clip=str(tmp_path / "jump.npz")).build()


def test_a_task_that_tracks_nothing_is_refused():
    with pytest.raises(ValueError, match="'Mjlab-Cartpole-Balance' tracks no motion"):
        TrackingEnvCfg(task="Mjlab-Cartpole-Balance").build()
    with pytest.raises(ValueError, match="tracks a motion, but there is no file"):
        MjlabEnvCfg(task="Mjlab-Tracking-Flat-Unitree-G1").build()


@pytest.mark.slow
def test_a_robot_that_moves_like_the_clip_makes_no_errors():
    env = TrackingEnvCfg(num_envs=4).build(seed=0)
    command = env.env.command_manager.get_term("motion")
    command.time_steps[:] = at = torch.tensor([3, 40, 111, 490])
    motion, data = command.motion, env.env.sim.data
    origins = env.env.scene.env_origins
    place = [motion.body_pos_w[at, 0] + origins, motion.body_quat_w[at, 0], motion.joint_pos[at]]
    moves = [motion.body_lin_vel_w[at, 0], motion.body_ang_vel_w[at, 0], motion.joint_vel[at]]
    data.qpos[:], data.qvel[:] = torch.cat(place, 1), torch.cat(moves, 1)
    env.env.sim.forward()
    command._update_metrics()
    for name in ("anchor_pos", "anchor_rot", "joint_pos", "joint_vel"):
        torch.testing.assert_close(
            command.metrics[f"error_{name}"], torch.zeros(4), rtol=0, atol=1e-5, msg=name
        )
    for name in ("body_lin_vel", "body_ang_vel"):  # of all tracked bodies, by finite differences
        assert command.metrics[f"error_{name}"].max() < 5e-3
    env.close()


@pytest.mark.slow
def test_actions_are_added_to_the_clips_joints_and_disturbances_grow():
    env = TrackingEnvCfg(num_envs=4, actions_around="reference", first_level=0.0).build(seed=0)
    command = env.env.command_manager.get_term("motion")
    assert env.env.sim.controls_are_held  # as with mjlab's own actions
    assert env.interface.robot["actions_around"] == "reference"
    # It begins on the clip, but for the joints' soft limits; mjlab counts a frame at the reset.
    joints = command.motion.joint_pos[command.time_steps - 1]
    assert (env.env.scene["robot"].data.joint_pos - joints).abs().max() < 0.03
    following = command.motion.joint_pos[command.time_steps + 1]
    env.step(torch.zeros(4, env.num_actions))
    bias = env.env.scene["robot"].data.encoder_bias
    target = env.env.scene["robot"].data.joint_pos_target
    torch.testing.assert_close(target + bias, following)

    curriculum = env.env.curriculum_manager.get_term_cfg("disturbances").func
    push = env.env.event_manager.get_term_cfg("push_robot").params
    threshold = env.env.termination_manager.get_term_cfg("anchor_pos").params
    assert push["velocity_range"]["x"] == (0, 0)
    assert threshold["threshold"] == 0.5  # twice mjlab's
    curriculum.level = 0.5
    curriculum._apply(env.env)
    assert push["velocity_range"]["x"] == (-0.25, 0.25)
    assert command.cfg.joint_position_range == (-0.05, 0.05)
    assert threshold["threshold"] == 0.375
    env.close()


@pytest.mark.slow
def test_the_level_rises_with_whole_episodes_and_falls_with_short_ones():
    env = TrackingEnvCfg(num_envs=4, first_level=0.2).build(seed=0)
    curriculum = env.env.curriculum_manager.get_term_cfg("disturbances").func
    ended, everyone = env.env.termination_manager.terminated, torch.arange(4)
    env.env.common_step_counter = 1
    env.env.episode_length_buf[:] = env.max_episode_length
    ended[:] = torch.tensor([False, False, False, True])  # three reached the end, one fell late
    curriculum(env.env, everyone, first=0.2, rounds=3.0)
    assert curriculum.level == pytest.approx(0.2 + 3 / 12)
    env.env.episode_length_buf[:] = 10
    ended[:] = True
    curriculum(env.env, everyone, first=0.2, rounds=3.0)
    assert curriculum.level == pytest.approx(0.2)  # not below the first
    env.close()
