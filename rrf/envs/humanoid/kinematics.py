"""Inverse kinematics of an arm: damped least squares on MuJoCo's Jacobians.

    dq = (J' W J + D)^-1 (J' W e + P (q_rest - q))

J is the Jacobian of the grasp site (`hands.GRASP`), e the way to the goal in m and rad, W their
weights, and P draws the elbow weakly towards a pose, so that the seven joints have one answer.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import mujoco
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.humanoid.command import ARM_JOINTS

_ITERATIONS, _MAX_STEP_RAD = 30, 0.25
_TURN_WEIGHT, _DAMPING, _POSTURE = 0.15, 1e-4, 2e-4
_CLOSE_M = 2e-4
REST = {
    "left": (0.0, 0.15, 0.0, 0.3, 0.9, 0.0, 0.0),
    "right": (0.0, -0.15, 0.0, 0.3, -0.9, 0.0, 0.0),
}
"""Where the posture term draws the joints of an arm, rad."""


class Arm:
    """One arm of a model, with memory for its own computations."""

    def __init__(self, model: mujoco.MjModel, side: str):
        self.side = side
        self.joints = tuple(name for name in ARM_JOINTS if name.startswith(side))
        self._model, self._scratch = model, mujoco.MjData(model)
        self.qpos = body.qpos_addresses(model, self.joints)
        self._dofs = body.qvel_addresses(model, self.joints)
        self._site = model.site(f"{side}_grasp").id
        self._low, self._high = model.jnt_range[[model.joint(j).id for j in self.joints]].T
        self._stiffness = np.array([body.motor(joint)[0] for joint in self.joints])
        self._rest = np.array(REST[side])
        self._jacobian, self._forces = np.zeros((6, model.nv)), np.zeros(model.nv)

    def solve(
        self, data: mujoco.MjData, place: np.ndarray, turn: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Angles of the arm, float64 [7], that bring its grasp site to a goal while everything else
        stays as in `data`, and how far from the goal that is, in m.

        Args:
            place: The goal in the world's frame, [3], m.
            turn: Axes of the site there, as columns, [3, 3].
        """
        scratch = self._scratch
        scratch.qpos[:] = data.qpos
        scratch.mocap_pos[:] = data.mocap_pos
        weights = np.array([1.0] * 3 + [_TURN_WEIGHT] * 3) ** 2
        error = np.empty(6)
        for _ in range(_ITERATIONS):
            self._forward()
            self._error(place, turn, error)
            if np.abs(error[:3]).max() < _CLOSE_M and np.abs(error[3:]).max() < 0.01:
                break
            mujoco.mj_jacSite(
                self._model, scratch, self._jacobian[:3], self._jacobian[3:], self._site
            )
            jacobian = self._jacobian[:, self._dofs]
            left = (jacobian.T * weights) @ jacobian + (_DAMPING + _POSTURE) * np.eye(7)
            q = scratch.qpos[self.qpos]
            right = jacobian.T @ (weights * error) + _POSTURE * (self._rest - q)
            step = np.linalg.solve(left, right)
            step *= min(1.0, _MAX_STEP_RAD / max(np.abs(step).max(), 1e-9))
            scratch.qpos[self.qpos] = np.clip(q + step, self._low, self._high)
        self._forward()
        self._error(place, turn, error)
        return scratch.qpos[self.qpos].copy(), float(np.linalg.norm(error[:3]))

    def targets(self, data: mujoco.MjData, angles: np.ndarray) -> np.ndarray:
        """What to command so that the arm's springs hold these angles against gravity, [7]."""
        scratch = self._scratch
        scratch.qpos[:] = data.qpos
        scratch.qpos[self.qpos] = angles
        self._forward()
        mujoco.mj_rne(self._model, scratch, 0, self._forces)  # without velocities: gravity alone
        sag = self._forces[self._dofs] / self._stiffness
        return np.clip(angles + sag, self._low, self._high)

    def place(self, data: mujoco.MjData) -> np.ndarray:
        """Where the grasp site is, [3], m."""
        return data.site_xpos[self._site].copy()

    def _forward(self) -> None:
        mujoco.mj_kinematics(self._model, self._scratch)
        mujoco.mj_comPos(self._model, self._scratch)

    def _error(self, place: np.ndarray, turn: np.ndarray, error: np.ndarray) -> None:
        error[:3] = place - self._scratch.site_xpos[self._site]
        matrix = turn @ self._scratch.site_xmat[self._site].reshape(3, 3).T
        quat = np.empty(4)
        mujoco.mju_mat2Quat(quat, matrix.ravel())
        mujoco.mju_quat2Vel(error[3:], quat, 1.0)


def facing(side: str, fingers: np.ndarray, palm: np.ndarray) -> np.ndarray:
    """Axes of a hand whose fingers point one way and whose palm faces another one, [3, 3]."""
    x = fingers / np.linalg.norm(fingers)
    y = palm - (palm @ x) * x
    y *= (-1.0 if side == "left" else 1.0) / np.linalg.norm(y)
    return np.stack([x, y, np.cross(x, y)], 1)
