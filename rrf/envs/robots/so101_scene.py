"""The simulated SO-101's world: an arm, a table, a cube to lift. Native MuJoCo, drawn by our ray
tracer. The model is `configs/robots/so101-sim.xml`.

Positions are in lerobot's units of an SO-101: degrees from the middle of the range, and 0..100 for
the gripper, 100 for open.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import typing
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from rrf import workspace

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
MODEL = "configs/robots/so101-sim.xml"
LIFTED_M = 0.05
"""How high the middle of the cube is when the task is solved."""
_HELD_M = 0.03  # at most from the fingertips to the middle of the cube
_REST = {"shoulder_lift": -20.0, "elbow_flex": 30.0, "wrist_flex": 60.0, "gripper": 60.0}
_SHOULDER_M = (0.03, 0.115)  # radius and height of shoulder_lift
_UPPER_ARM_M, _FOREARM_M, _HAND_M = 0.116, 0.135, 0.095
_RADII_M, _MAX_ANGLE_RAD = (0.17, 0.23), 0.6
_GRIPPER_M = 0.06


class So101Scene:
    """One arm and one cube."""

    def __init__(self, cameras: Sequence[str], image_size: tuple[int, int], renderer: str):
        self._spec = mujoco.MjSpec.from_file(str(workspace.find(MODEL)))
        self.model = self._spec.compile()
        self.data = mujoco.MjData(self.model)
        self._cameras, self._image_size, self._renderer_name = cameras, image_size, renderer
        self._renderer: typing.Any = None
        known = [self.model.camera(index).name for index in range(self.model.ncam)]
        for camera in cameras:
            if camera not in known:
                raise ValueError(f"no camera '{camera}'; known: {', '.join(known)}")
        self._qpos = [self.model.joint(name).qposadr[0] for name in JOINTS]
        self.reset(0, 0)

    def reset(self, seed: int, index: int) -> None:
        """Begin an episode: the arm near its rest, the cube somewhere within reach."""
        random = np.random.default_rng([seed, index])
        mujoco.mj_resetData(self.model, self.data)
        radius, angle = random.uniform(*_RADII_M), random.uniform(-_MAX_ANGLE_RAD, _MAX_ANGLE_RAD)
        place = [radius * np.cos(angle), radius * np.sin(angle), 0.0125]
        turn = [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]  # a side towards the base
        self.data.joint("cube").qpos[:] = [*place, *turn]
        rest = {name: _REST.get(name, 0.0) + random.uniform(-4, 4) for name in JOINTS}
        goals = _to_model(rest)
        self.data.qpos[self._qpos] = goals
        self.data.ctrl[:] = goals
        mujoco.mj_forward(self.model, self.data)

    def positions(self) -> dict[str, float]:
        """Where each joint is."""
        values = self.data.qpos[self._qpos]
        return {name: float(value) for name, value in zip(JOINTS, _from_model(values), strict=True)}

    def command(self, goals: Mapping[str, float]) -> None:
        """Set goal positions; those that are not named stay."""
        present = dict(zip(JOINTS, _from_model(self.data.ctrl), strict=True))
        low, high = self.model.actuator_ctrlrange.T
        self.data.ctrl[:] = np.clip(_to_model(present | dict(goals)), low, high)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        mujoco.mj_step(self.model, self.data, max(1, round(seconds / self.model.opt.timestep)))
        mujoco.mj_forward(self.model, self.data)

    def set_torque(self, is_on: bool) -> None:
        """Switch the motors on or off; switched on, they go to the last goal."""
        flag = int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
        flags = self.model.opt.disableflags
        self.model.opt.disableflags = flags & ~flag if is_on else flags | flag

    def images(self) -> dict[str, np.ndarray]:
        """Camera -> uint8 [H, W, 3]."""
        if not self._cameras:
            return {}
        if self._renderer is None:
            from rrf.envs.rendering.renderers import choose_renderer, make_renderer

            name = choose_renderer(self._renderer_name, max(self._image_size))
            self._renderer = make_renderer(
                name, self._spec, self.model, self._cameras, self._image_size, max_batch=1
            )
        images = self._renderer.render([self.data])
        return {name: image[0].copy() for name, image in zip(self._cameras, images, strict=True)}

    @property
    def cube(self) -> np.ndarray:
        """Where the middle of the cube is, [x, y, z] in m."""
        return self.data.body("cube").xpos.copy()

    @property
    def is_solved(self) -> bool:
        """Whether the cube is lifted, between the fingertips."""
        is_held = np.linalg.norm(self.cube - self.data.site("tip").xpos) < _HELD_M
        return bool(self.cube[2] > LIFTED_M and is_held)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def reaching(x: float, y: float, z: float, gripper: float) -> dict[str, float]:
    """Positions with which the fingertips are at a point in m and the hand points down.

    Raises:
        ValueError: For a point out of reach.
    """
    radius, height = np.hypot(x, y) - _SHOULDER_M[0], z + _HAND_M - _SHOULDER_M[1]
    upper, forearm = _UPPER_ARM_M, _FOREARM_M
    cosine = (radius**2 + height**2 - upper**2 - forearm**2) / (2 * upper * forearm)
    if not -1 <= cosine <= 1:
        raise ValueError(f"({x:.3f}, {y:.3f}, {z:.3f}) m is out of reach")
    bend = np.arccos(cosine)
    elevation = np.arctan2(height, radius) + np.arctan2(
        forearm * np.sin(bend), upper + forearm * np.cos(bend)
    )
    lift, pitch = np.pi / 2 - elevation, bend - elevation
    angles = (np.arctan2(y, x), lift, pitch - lift, np.pi / 2 - pitch, 0.0)
    values = [*np.rad2deg(angles), gripper]
    return {name: float(value) for name, value in zip(JOINTS, values, strict=True)}


def _to_model(positions: Mapping[str, float]) -> np.ndarray:
    values = np.deg2rad([positions[name] for name in JOINTS])
    values[-1] = positions["gripper"] / 100 * _GRIPPER_M
    return values


def _from_model(values: np.ndarray) -> np.ndarray:
    positions = np.rad2deg(values)
    positions[-1] = values[-1] / _GRIPPER_M * 100
    return positions
