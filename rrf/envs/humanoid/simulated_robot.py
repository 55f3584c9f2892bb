"""A simulated G1 for the runtime of a hierarchy (`rrf.hierarchy.runtime.Robot`), tick by tick.

It is any MuJoCo model with the robot's joints: on bare ground, or before a table, with or without
hands.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

from collections.abc import Callable

import mujoco
import numpy as np

from rrf.data.schema import Observation
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.balancer import STEP_S, standing_command
from rrf.envs.humanoid.robots import G1

_HOLD_SOFTNESS = 0.3  # share of the stiffness with which a robot holds that has no System 0


class SimulatedRobot:
    """See the module.

    Args:
        model: The robot and its surroundings.
        data: Its state now.
        observe: What Systems 2 and 1 see of it.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        observe: Callable[[mujoco.MjModel, mujoco.MjData], Observation] | None = None,
    ):
        self.model, self.data, self._observe = model, data, observe
        has_hands = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, command.HAND_JOINTS[0]) >= 0
        self.joints = (*body.JOINTS, *(command.HAND_JOINTS if has_hands else ()))
        self._q = body.qpos_addresses(model, body.JOINTS)
        self._v = body.qvel_addresses(model, body.JOINTS)
        self._motors = body.actuator_ids(model, body.JOINTS)
        self._hands = body.actuator_ids(model, command.HAND_JOINTS) if has_hands else None
        self.resting = standing_command(1)[0]
        self._num_substeps = round(STEP_S / model.opt.timestep)
        self.halted: str | None = None
        """Why the robot stopped without System 0."""

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Robot.read`."""
        qpos, qvel = self.data.qpos, self.data.qvel
        return np.concatenate([qpos[:7], qpos[self._q]]), np.concatenate([qvel[:6], qvel[self._v]])

    def observe(self) -> Observation:
        """See `Robot.observe`."""
        assert self._observe is not None, "this robot shows nothing to Systems 2 and 1"
        return self._observe(self.model, self.data)

    def told(self, command_36: np.ndarray) -> None:
        """See `Robot.told`."""

    def drive(self, joints_29: np.ndarray, hands_14: np.ndarray) -> None:
        """See `Robot.drive`. Advances the simulation by a tick."""
        self.data.ctrl[self._motors] = joints_29
        if self._hands is not None:
            self.data.ctrl[self._hands] = hands_14
        self._advance()

    def halt(self, reason: str) -> None:
        """See `Robot.halt`. Advances the simulation by a tick."""
        if self.halted is None:
            self.halted = reason
            joints = body.qpos_addresses(self.model, self.joints)
            self.data.ctrl[body.actuator_ids(self.model, self.joints)] = self.data.qpos[joints]
            self.model.actuator_gainprm[:, 0] *= _HOLD_SOFTNESS
            self.model.actuator_biasprm[:, 1] *= _HOLD_SOFTNESS
        self._advance()

    @property
    def has_fallen(self) -> bool:
        """See `Robot.has_fallen`."""
        return body.is_lost(self.data)

    def _advance(self) -> None:
        for _ in range(self._num_substeps):
            mujoco.mj_step(self.model, self.data)


def standing_data(model: mujoco.MjModel, height: float = body.TALL) -> mujoco.MjData:
    """A state in which the robot of a model stands still at the origin, looking along x."""
    data = mujoco.MjData(model)
    data.qpos[2], data.qpos[3] = height, 1.0
    pose = G1.standing.pose(np.array([height]), np.zeros((1, 3)))[0]
    data.qpos[body.qpos_addresses(model, body.DRIVEN)] = pose
    arms = body.default_pose(command.ARM_JOINTS)
    data.qpos[body.qpos_addresses(model, command.ARM_JOINTS)] = arms
    mujoco.mj_forward(model, data)
    return data
