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
