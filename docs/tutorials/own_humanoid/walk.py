"""System 1's task as one of Gymnasium: say where to walk, ten times a second; System 0 walks."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np

from rrf.envs.humanoid import balancer, body
from rrf.envs.humanoid.proprioception import euler

SYSTEM0 = sorted(Path(".rrf/runs/balance").glob("global_step_*"))[-1]
TICKS = 5  # of 1/50 s for each command
COMMANDS = ("vx", "vy", "vyaw")


class Walk(gymnasium.Env):
    """Walk to a mark on the ground, half a metre to one and a half away."""

    observation_space = gymnasium.spaces.Box(-9, 9, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self):
        self.robot = balancer.load_robot(SYSTEM0)
        spec = self.robot.spec()
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self.system0 = balancer.load_balancer(SYSTEM0, self.model, robot=self.robot)
        names = [signal.name for signal in self.robot.signals]
        self.sent = [names.index(name) for name in COMMANDS]
        joints = self.robot.driven + self.robot.commanded
        self.motors = body.actuator_ids(self.model, joints)
        self.qpos = body.qpos_addresses(self.model, joints)
        self.pose = self.robot.default_pose(joints)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[2:4] = self.robot.tall, 1.0  # upright
        self.data.qpos[self.qpos] = self.pose
        angle, distance = self.np_random.uniform(-1, 1), self.np_random.uniform(0.5, 1.5)
        self.mark = distance * np.array([np.cos(angle), np.sin(angle)])
        self.command = balancer.standing_command(1, self.robot)
        self.system0.reset(np.array([0]), self.data.qpos[None], self.data.qvel[None])
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        """The mark in the heading frame (m), the velocity there (m/s), the height (m)."""
        yaw = euler(self.data.qpos[None, 3:7])[0, 2]
        turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
        way, speed = turn @ (self.mark - self.data.qpos[:2]), turn @ self.data.qvel[:2]
        return np.array([*way, *speed, self.data.qpos[2]], np.float32)

    def step(self, action):
        self.command[0, self.sent] = action
        for _ in range(TICKS):
            state = self.data.qpos[None], self.data.qvel[None]
            self.data.ctrl[self.motors] = self.system0.targets(np.array([0]), *state, self.command)
            mujoco.mj_step(self.model, self.data, round(balancer.STEP_S / self.model.opt.timestep))
        seen = self.seen()
        fell = bool(body.has_fallen(self.data.qpos[None], self.robot.min_height)[0])
        return seen, 1.0 - float(np.hypot(*seen[:2])), fell, False, {}


gymnasium.register("Walk-v0", Walk, max_episode_steps=60)
