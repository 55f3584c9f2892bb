"""The motion-tracking task: N robots follow the frames of motion clips, from what they can measure.

Legend: N robots, K of them chosen, C joints that the policy sees and drives.
"""

import typing
from collections.abc import Mapping

import numpy as np
import torch

from rrf.envs.control_env import Interface
from rrf.envs.humanoid.balancer import STEP_S
from rrf.envs.humanoid.humanoid_env import HumanoidEnv, Outcome, motor_facts, noise_scale
from rrf.envs.humanoid.motion_configs import MotionTrackingEnvCfg
from rrf.envs.humanoid.motion_library import MotionLibrary, in_heading
from rrf.envs.humanoid.proprioception import ACTION_SCALE, euler, wrapped
from rrf.envs.humanoid.robots import robot_of
from rrf.envs.humanoid.whole_body_rewards import Motion, near
from rrf.envs.motions.clip import quat_mul, quat_of_rotation_vector, read_all

AHEAD = (1, 5, 10)
"""Frames from now on whose joints a policy is shown."""
WEIGHTS = {
    "links": 3.0,
    "joints": 1.0,
    "velocity": 2.0,
    "spin": 0.5,
    "height": 1.0,
    "tilt": 1.0,
    "heading": 1.0,
    "contacts": 2.0,
    "alive": 0.5,
    "slip": -0.3,
    "action_rate": -0.01,
    "action": -0.005,
    "acceleration": -2e-7,
    "torque": -2e-5,
}
"""Term -> reward per second and unit of the term. What is tracked is what mjlab's task tracks, but
for where the pelvis is in the world, which no robot measures."""
_UP = np.array([0.0, 0.0, 1.0])
_LOST_M, _LOST_RAD = 0.25, 0.8


class MotionTrackingEnv(HumanoidEnv):
    """See `rrf.envs.control_env.ControlEnv` and the config.

    "actor" is what the robot measures (angular velocity, roll, pitch and heading error, joints
    beside the clip's, their velocities, the last action) and the clip: joints of three frames
    ahead, velocities of joints and pelvis, its height and tilt, which soles touch. "critic" has 15
    numbers more that no robot measures.
    """

    limits: typing.ClassVar[dict[str, float]] = {"links": 0.08, "velocity": 0.3, "height": 0.06}
    """Mean errors of a solved episode: of the links' places beside the pelvis' (m), m/s, m."""

    def __init__(
        self, cfg: MotionTrackingEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        num = len(robot_of(cfg.robot).observed)
        super().__init__(cfg, num, seed, device, has_links=True)
        self._library = MotionLibrary(
            read_all(cfg.clips), self.robot, self._physics.model, 1 / STEP_S
        )
        self._frame_n = np.zeros(self.num_envs, np.int64)
        self._began_n = np.zeros(self.num_envs, np.int64)
        own, clip = 7 + 3 * num, num * (len(AHEAD) + 1) + 3 + 3 + 1 + 2 + 2
        self._default = self.robot.default_pose(self.robot.observed)
        self._noise = noise_scale(self.robot)[: 7 + 2 * num]
        dims = {"actor": own + clip, "critic": own + clip + 15}
        self.interface = Interface(
            observation_dims=dims,
            num_actions=num,
            step_dt=STEP_S,
            task=cfg.task,
            observation_terms={"actor": {"proprioception": own, "motion": clip}},
            robot=motor_facts(self.robot, self.robot.observed)
            | {
                "observation_names": ["proprioception", "motion"],
                "actions_around": "reference",
                "frames_ahead": list(AHEAD),
            },
        )
        self.reset()

    # What `HumanoidEnv` asks for.

    def _targets(self, action_na: np.ndarray) -> np.ndarray:
        return self._ahead(1) + ACTION_SCALE * action_na

    def _judge(self, motion: Motion, action_na: np.ndarray) -> Outcome:
        self._frame_n += 1
        wanted, at = self._library.frames, self._frame_n
        angles = euler(self._physics.qpos[:, 3:7])
        places = self._physics.links
        links = in_heading(places[:, 1:] - places[:, :1], angles[:, 2])
        off = np.linalg.norm(links - wanted.links_fc3[at], axis=2)
        velocity = np.linalg.norm(motion.velocity_n3[:, :2] - wanted.velocity_f3[at, :2], axis=1)
        height = np.abs(motion.height_n - wanted.root_f7[at, 2])
        tilt_error = np.square(wrapped(angles[:, :2] - wanted.tilt_f2[at])).sum(1)
        spin = np.square(motion.spin_n3 - wanted.spin_f3[at]).sum(1)
        joints = np.square(motion.joints_na - wanted.joints_fc[at]).mean(1)
        values = {
            "links": near(np.square(off).mean(1), 0.04, 0.0025),
            "joints": near(joints, 0.1, 0.01),
            "velocity": near(np.square(velocity), 0.3, 0.05),
            "spin": np.exp(-spin / 2),
            "height": np.exp(-np.square(height) / 0.003),
            "tilt": np.exp(-tilt_error / 0.05),
            "heading": near(np.square(motion.heading_error_n), 0.4, 0.05),
            "contacts": (wanted.touches_f2[at] == motion.touches_n2).mean(1),
            "alive": np.ones(self.num_envs),
            "slip": (np.square(motion.feet_speed_n2) * motion.touches_n2).sum(1),
            "action_rate": np.square(action_na - self._action_na).sum(1),
            "action": np.square(action_na).sum(1),
            "acceleration": np.square(motion.acceleration_na).sum(1),
            "torque": np.square(motion.torque_na).sum(1),
        }
        mean = off.mean(1)
        return Outcome(
            terms={name: WEIGHTS[name] * value for name, value in values.items()},
            errors_ne=np.stack([mean, velocity, height], 1),
            measured={"mpjpe": 1000 * mean, "velocity_error": velocity, "height_error": height},
            lost_n=(height > _LOST_M) | (tilt_error > _LOST_RAD**2),
            over_n=self._frame_n >= self._library.ends(self._frame_n) - max(AHEAD),
        )

    def _advance(self) -> None:
        """The heading to keep, pushes."""
        # Who cannot follow is not asked to turn back all that he missed.
        yaws = self._library.frames.yaw_f
        yaw = euler(self._physics.qpos[:, 3:7])[:, 2]
        turn = wrapped(yaws[np.minimum(self._frame_n + 1, len(yaws) - 1)] - yaws[self._frame_n])
        self._heading_n = yaw - self._heading_error() + turn
        self._push_some()

    def _end(self, ids: np.ndarray, fell_k: np.ndarray) -> None:
        super()._end(ids, fell_k)
        self._library.fell(self._began_n[ids[fell_k]])

    def _begin(self, ids: np.ndarray) -> None:
        """In some frame of a clip, turned anyhow, at its speed."""
        frames = self._library.frames
        at = self._library.draw(self._rng, len(ids))
        self._frame_n[ids] = self._began_n[ids] = at
        turn = self._rng.uniform(-np.pi, np.pi, len(ids))
        qpos = np.zeros((len(ids), self._physics.model.nq))
        qpos[:, 2] = frames.root_f7[at, 2] + 0.01
        turned = quat_of_rotation_vector(turn[:, None] * _UP)
        qpos[:, 3:7] = quat_mul(turned, frames.root_f7[at, 3:7])
        self._put(ids, qpos, frames.joints_fc[at])
        heading = frames.yaw_f[at] + turn
        self._physics.qvel[ids, :3] += in_heading(frames.velocity_f3[at], -heading)
        self._physics.qvel[ids, 3:6] += frames.spin_f3[at]
        self._physics.qvel[np.ix_(ids, self._observe.dofs)] = frames.joint_velocities_fc[at]
        self._heading_n[ids] = heading + self._rng.uniform(-0.3, 0.3, len(ids)) * self._disorder
        self._settle(ids)

    def _own_arrays(self) -> dict[str, np.ndarray]:
        return {"frame": self._frame_n, "began": self._began_n, "falls": self._library.falls_b}

    def _load_own(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._frame_n, self._began_n = arrays["frame"], arrays["began"]
        self._library.falls_b = arrays["falls"]

    # What is observed.

    def _observe_all(self) -> dict[str, np.ndarray]:
        return self._compose()

    def _compose(self) -> dict[str, np.ndarray]:
        frames, at, qpos = self._library.frames, self._frame_n, self._physics.qpos
        error = self._heading_error()
        measured = np.concatenate(
            [
                0.25 * self._physics.qvel[:, 3:6],
                euler(qpos[:, 3:7])[:, :2],
                np.sin(error)[:, None], np.cos(error)[:, None],
                self._observe.joints(qpos) - frames.joints_fc[at],
                self._observe.seen_velocities(self._physics.qvel),
            ],
            axis=1, dtype=np.float32,
        )  # fmt: skip
        clip = [
            *(self._ahead(num) - self._default for num in AHEAD),
            0.05 * frames.joint_velocities_fc[at],
            frames.velocity_f3[at], 0.25 * frames.spin_f3[at],
            frames.root_f7[at, 2:3], frames.tilt_f2[at], frames.touches_f2[at],
        ]  # fmt: skip
        actor = np.concatenate(
            [self._noisy(measured, self._noise), self._action_na, *clip], 1, dtype=np.float32
        )
        height = (qpos[:, 2] - frames.root_f7[at, 2]).astype(np.float32)[:, None]
        return {"actor": actor, "critic": np.concatenate([actor, height, self._unmeasured()], 1)}

    def _ahead(self, num: int) -> np.ndarray:
        """Joints of the clips some frames from now, [N, C], rad."""
        return self._library.frames.joints_fc[self._frame_n + num]
