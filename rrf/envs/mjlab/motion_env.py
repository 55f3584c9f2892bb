"""A task of mjlab whose robot has reference motions: the robot and the clips are seen alike.

The observation group "amp" holds what `rrf.envs.motions.rig.frames` computes of a clip, in the same
order and units, without noise.
"""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.manager_base import ManagerTermBase
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.utils.lab_api.math import quat_apply_inverse

from rrf.envs.mjlab import env as mjlab_env
from rrf.envs.mjlab.configs import MotionEnvCfg
from rrf.envs.mjlab.env import MjlabEnv
from rrf.envs.mjlab.task import registered
from rrf.envs.motions.clip import Clip, read_all, rotate
from rrf.envs.motions.rig import Rig, frames

GROUP = "amp"
_ROBOT = "robot"


def build(cfg: MotionEnvCfg, seed: int = 0, device: torch.device | str = "cpu") -> "MotionEnv":
    """The environment that `cfg` describes.

    Raises:
        ValueError: For clips that cannot be read, that are of another robot or too short, for feet
            that the robot does not have, and as `rrf.envs.mjlab.env.build`.
    """
    clips = read_all(cfg.clips)
    task = registered(cfg.task, cfg.play)
    feet = SceneEntityCfg(_ROBOT, site_names=tuple(cfg.feet), preserve_order=True)
    seen = {"feet": feet, "parts": cfg.frame_parts}
    term = ObservationTermCfg(func=motion_frame, params=seen)
    task.observations[GROUP] = ObservationGroupCfg(terms={"frame": term}, enable_corruption=False)
    if cfg.reference_init:
        begin = {"clips": clips, "share": cfg.reference_init}
        task.events["reference_init"] = EventTermCfg(ReferenceInit, mode="reset", params=begin)
    return MotionEnv(mjlab_env.build(cfg.replace(play=False), seed, device, task), clips)


class MotionEnv(MjlabEnv):
    """An mjlab environment that is a `rrf.envs.control_env.MotionEnv`."""

    cfg: MotionEnvCfg

    def __init__(self, made: MjlabEnv, clips: list[Clip]):
        """Take over `made`, whose episodes have begun."""
        vars(self).update(vars(made))
        self.rig = Rig(self.mj_model, self.cfg.feet, prefix=f"{_ROBOT}/")
        self.clips = [clip.with_joints(self.rig.joint_names) for clip in clips]
        self.pose_width = len(self.rig.joint_names)

    def frames(self) -> torch.Tensor:
        return self.get_observations()[GROUP]

    @functools.cached_property
    def _references(self) -> list[torch.Tensor]:
        rate = 1 / self.interface.step_dt
        clips = [clip.resampled(rate) for clip in self.clips]
        made = [frames(clip, self.rig, self.cfg.frame_parts) for clip in clips]
        return [torch.from_numpy(clip).float().to(self.device) for clip in made]

    def reference_frames(self) -> list[torch.Tensor]:
        return self._references


class ReferenceInit(ManagerTermBase):
    """A reset event of mjlab: a share of the episodes begins in states of the clips. The base keeps
    the place that earlier events gave it, but has the clip's height, orientation and velocities."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv):
        super().__init__(env)
        self.robot = env.scene[_ROBOT]
        names = self.robot.joint_names
        parts = [_states(clip.with_joints(names)) for clip in cfg.params["clips"]]
        self.states = torch.from_numpy(np.concatenate(parts)).float().to(env.device)
        self.num_joints = len(names)
        self.place = self.robot.indexing.free_joint_q_adr[:2]

    def __call__(
        self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, share: float, clips: list[Clip]
    ) -> None:
        del clips  # their states were computed when the term was made
        begins = torch.rand(len(env_ids), device=self.device) < share
        rows = torch.randint(len(self.states), (len(env_ids),), device=self.device)[begins]
        chosen = env_ids[begins]
        stance, speeds, joints = self.states[rows].split([5, 6, 2 * self.num_joints], 1)
        place = env.sim.data.qpos[chosen][:, self.place]
        self.robot.write_root_link_pose_to_sim(torch.cat([place, stance], 1), env_ids=chosen)
        self.robot.write_root_link_velocity_to_sim(speeds, env_ids=chosen)
        self.robot.write_joint_state_to_sim(*joints.chunk(2, 1), env_ids=chosen)


def _states(clip: Clip) -> np.ndarray:
    """Height and orientation of the base, its velocities in the world, joints and their velocities,
    [T, 11 + 2 J]."""
    spin = rotate(clip.root_quat, clip.root_ang_vel())
    parts = [clip.root_pos[:, 2:], clip.root_quat, clip.root_lin_vel(), spin]
    return np.concatenate([*parts, clip.joint_pos, clip.joint_vel()], 1)


def motion_frame(
    env: ManagerBasedRlEnv, feet: SceneEntityCfg, parts: Sequence[str]
) -> torch.Tensor:
    """A term of mjlab: `rrf.envs.motions.rig.frames` of the current states, [N, D]."""
    data = env.scene[feet.name].data
    origin = data.root_link_pos_w
    feet_w = data.site_pos_w[:, feet.site_ids] - origin[:, None]
    quat = data.root_link_quat_w[:, None].expand(-1, feet_w.shape[1], -1)
    every = {
        "joint_pos": data.joint_pos,
        "joint_vel": data.joint_vel,
        "height": (origin - env.scene.env_origins)[:, 2:],
        "lin_vel": data.root_link_lin_vel_b,
        "ang_vel": data.root_link_ang_vel_b,
        "gravity": data.projected_gravity_b,
        "feet": quat_apply_inverse(quat, feet_w).flatten(1),
    }
    return torch.cat([every[part] for part in parts], dim=1)
