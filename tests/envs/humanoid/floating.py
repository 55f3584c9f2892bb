"""Stands in for a whole-body policy where a test is about something else: the pelvis is carried two
centimetres above the ground as the command says, and the legs hold a standing pose.
"""

from collections.abc import Callable, Collection

import mujoco
import numpy as np

from rrf.config import configclass
from rrf.envs.humanoid import scene
from rrf.envs.humanoid.command import ARMS, NAMES
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.robots import G1
from rrf.envs.humanoid.simulator import HumanoidVecEnv

_HOVER_M, _TICK_S, _RISE_M_S, _TURN_RAD_S = 0.02, 0.02, 0.2, 0.8
_PER_S = 20.0  # how fast it returns to its way; what it holds is carried along


class Floating:
    """A `rrf.envs.humanoid.balancer.Balancer` that may move what it balances."""

    def __init__(self, model: mujoco.MjModel, data: Callable[[int], mujoco.MjData]):
        """`data`: the state of a slot."""
        self._data = data
        self._pelvis = model.body("pelvis").id
        self._weight = 9.81 * model.body_subtreemass[self._pelvis]
        self._goals: dict[int, np.ndarray] = {}  # x, y, height, heading, heading at the start

    def reset(self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray) -> None:
        for slot in robots.tolist():
            self._goals.pop(slot, None)

    def targets(
        self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray, command_k36: np.ndarray
    ) -> np.ndarray:
        rows = zip(robots.tolist(), command_k36, strict=True)
        return np.stack([self._targets(slot, self._data(slot), row) for slot, row in rows])

    def _targets(self, slot: int, data: mujoco.MjData, command: np.ndarray) -> np.ndarray:
        values = dict(zip(NAMES, command.tolist(), strict=True))
        if slot not in self._goals:
            angle = 2 * np.arctan2(data.qpos[6], data.qpos[3])
            self._goals[slot] = np.array([*data.qpos[:3], angle, angle])
        goal = self._goals[slot]
        cos, sin = np.cos(goal[3]), np.sin(goal[3])
        vx, vy = values["vx"], values["vy"]
        ways = np.array(
            [values["height"] + _HOVER_M - goal[2], goal[4] + values["target_yaw"] - goal[3]]
        )
        most = np.array([_RISE_M_S, _TURN_RAD_S])
        speed = np.array(
            [cos * vx - sin * vy, sin * vx + cos * vy, *np.clip(ways / _TICK_S, -most, most)]
        )
        goal[:4] += _TICK_S * speed
        torso = np.array([[values["torso_roll"], values["torso_pitch"], values["torso_yaw"]]])
        pose = G1.standing.pose(np.array([values["height"]]), torso)[0]
        lean = values["torso_pitch"] - pose[-1]
        quat = np.empty(4)
        upright = np.array([np.cos(goal[3] / 2), 0.0, 0.0, np.sin(goal[3] / 2)])
        mujoco.mju_mulQuat(quat, upright, np.array([np.cos(lean / 2), 0, np.sin(lean / 2), 0]))
        data.xfrc_applied[self._pelvis, 2] = self._weight
        back, way, turn = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_negQuat(back, data.qpos[3:7])
        mujoco.mju_mulQuat(way, back, quat)
        mujoco.mju_quat2Vel(turn, way, 1.0)
        data.qvel[:3] = speed[:3] + _PER_S * (goal[:3] - data.qpos[:3])
        data.qvel[3:6] = np.array([0.0, 0.0, speed[3]]) + _PER_S * turn  # in the pelvis' frame
        return np.concatenate([pose, command[ARMS]])


class FloatingVecEnv(HumanoidVecEnv):
    """The environment with the stand-in."""

    def _data(self, slot: int) -> mujoco.MjData:
        return self._episodes[slot].data

    def __init__(self, cfg: HumanoidCfg):
        super().__init__(cfg, Floating(scene.spec().compile(), self._data))


@configclass(builds="tests.envs.humanoid.floating:FloatingVecEnv")
class FloatingCfg(HumanoidCfg):
    """Its config."""

    def versions(self, packages: Collection[str]) -> dict[str, str]:
        return {}
