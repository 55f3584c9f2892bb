"""mjlab's motion tracking tasks from a motion clip: the file that mjlab reads is made from it."""

import dataclasses
import tempfile
import typing
from pathlib import Path

import mujoco
import numpy as np
import torch
from mjlab.entity import Entity
from mjlab.envs.mdp.actions import JointPositionActionCfg
from mjlab.managers.curriculum_manager import CurriculumTermCfg

from rrf.envs.mjlab import env as mjlab_env
from rrf.envs.mjlab.configs import TrackingEnvCfg
from rrf.envs.mjlab.env import MjlabEnv
from rrf.envs.mjlab.task import registered
from rrf.envs.mjlab.tracking_terms import Disturbances, ReferenceActionCfg
from rrf.envs.motions.clip import Clip, angular_velocities, read_all, rotate
from rrf.envs.motions.rig import Rig

_ROBOT = "robot"
_ROUNDS = 3.0  # of good episodes from the first level to the last


def build(cfg: TrackingEnvCfg, seed: int = 0, device: torch.device | str = "cpu") -> MjlabEnv:
    """The environment that `cfg` describes.

    Raises:
        ValueError: For a clip that cannot be read, that jumps, is of another robot or too short;
            for a task that tracks no motion; and as `rrf.envs.mjlab.env.build`.
    """
    (clip,) = read_all([cfg.clip])
    clip.require_no_jumps()
    task = registered(cfg.task, cfg.play)
    tracked = [command for command in task.commands.values() if hasattr(command, "motion_file")]
    if len(tracked) != 1:
        raise ValueError(
            f"mjlab's task '{cfg.task}' tracks no motion; use one of Mjlab-Tracking-..., or "
            "rrf.envs.mjlab.configs:MjlabEnvCfg"
        )
    if cfg.actions_around == "reference":
        _act_around_the_reference(task)
    if cfg.first_level < 1:
        task.curriculum["disturbances"] = CurriculumTermCfg(
            func=Disturbances, params={"first": cfg.first_level, "rounds": _ROUNDS}
        )
    model = Entity(task.scene.entities[_ROBOT]).compile()
    rate = 1 / (task.sim.mujoco.timestep * task.decimation)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "motion.npz"
        write_motion(clip.resampled(rate), model, file)
        tracked[0].motion_file = str(file)
        return mjlab_env.build(cfg.replace(play=False), seed, device, task)


def _act_around_the_reference(task: typing.Any) -> None:
    for name, term in task.actions.items():
        if type(term) is JointPositionActionCfg:
            given: dict[str, typing.Any] = {
                field.name: getattr(term, field.name) for field in dataclasses.fields(term)
            }
            given["use_default_offset"] = False
            task.actions[name] = ReferenceActionCfg(**given)


def write_motion(clip: Clip, model: mujoco.MjModel, file: Path) -> None:  # pyright: ignore[reportAttributeAccessIssue]
    """Write what mjlab's tracking tasks read: joints, and bodies in the world, of every frame.

    Args:
        clip: At the control rate.
        model: The robot alone.

    Raises:
        ValueError: If the clip is of another robot.
    """
    rig = Rig(model, [])
    clip = clip.with_joints(rig.joint_names)
    places, turns = rig.bodies(clip)
    spins = [angular_velocities(of_body, clip.fps) for of_body in turns.swapaxes(0, 1)]
    np.savez(
        file,
        fps=np.float64(clip.fps),
        joint_pos=clip.joint_pos,
        joint_vel=clip.joint_vel(),
        body_pos_w=places,
        body_quat_w=turns,
        body_lin_vel_w=np.gradient(places, axis=0) * clip.fps,
        body_ang_vel_w=rotate(turns, np.stack(spins, 1)),
    )
