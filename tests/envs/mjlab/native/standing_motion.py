"""A motion file for mjlab's tracking tasks: the G1 stands still."""

from pathlib import Path

import mujoco
import numpy as np


def write_standing_motion(file: Path, num_frames: int) -> None:
    """Joint and body states of the robot's initial pose, `num_frames` times."""
    from mjlab.asset_zoo.robots import get_g1_robot_cfg
    from mjlab.entity import Entity

    model = Entity(get_g1_robot_cfg()).compile()
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_kinematics(model, data)
    bodies = model.nbody - 1

    def frames(values: np.ndarray) -> np.ndarray:
        return np.repeat(values[None], num_frames, axis=0)

    np.savez(
        file,
        joint_pos=frames(data.qpos[7:]),
        joint_vel=frames(data.qvel[6:]),
        body_pos_w=frames(data.xpos[1:]),
        body_quat_w=frames(data.xquat[1:]),
        body_lin_vel_w=frames(np.zeros((bodies, 3))),
        body_ang_vel_w=frames(np.zeros((bodies, 3))),
    )
