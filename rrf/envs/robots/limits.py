"""Whether a command may be executed: pure functions of the command, the one before, and the limits.

What begins outside a limit, as an arm at rest may, may come back but not go further out.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import math
from collections.abc import Mapping

import numpy as np

from rrf import workspace
from rrf.config import did_you_mean
from rrf.envs.robots.configs import FRACTIONS, KINEMATIC_UNITS, JointCfg, WorkspaceCfg

_SLACK = 1e-6  # of a limit: the rounding of a float32


def misfit(
    command: Mapping[str, float], before: Mapping[str, float], joints: Mapping[str, JointCfg]
) -> str | None:
    """Why a command may not be executed after the one before; None if it may."""
    for name, joint in joints.items():
        value = command.get(name)
        if value is None or not math.isfinite(value):
            said = "is missing" if value is None else f"is {value}"
            return f"{name} {said}; an action has a finite number for each joint"
        slack = _SLACK * (joint.max - joint.min)
        if outside(value, joint) > max(slack, outside(before[name], joint)):
            return f"{name} is {value:.1f} {joint.unit}, allowed: {joint.min:g} to {joint.max:g}"
    unknown = [name for name in command if name not in joints]
    return f"the robot has no '{unknown[0]}'{did_you_mean(unknown[0], joints)}" if unknown else None


def too_fast(
    command: Mapping[str, float],
    before: Mapping[str, float],
    joints: Mapping[str, JointCfg],
    period_s: float,
) -> str | None:
    """Which joint would move faster than it may; None if none would."""
    for name, joint in joints.items():
        speed = abs(command[name] - before[name]) / period_s
        if speed > joint.max_speed * (1 + _SLACK):
            return (
                f"{name} would move by {speed:.0f} {joint.unit}/s, from {before[name]:.1f} to "
                f"{command[name]:.1f}; allowed: {joint.max_speed:g}"
            )
    return None


def outside(value: float, joint: JointCfg) -> float:
    """How far a value is out of its range."""
    return max(joint.min - value, value - joint.max, 0.0)


class Reach:
    """Where a point of the robot is, by forward kinematics.

    Raises:
        ValueError: If the model, the point or a joint does not exist, a joint has a unit that says
            nothing about a model, or has no range in the model where its unit needs it.
    """

    def __init__(self, cfg: WorkspaceCfg, joints: Mapping[str, JointCfg]):
        import mujoco

        path = workspace.find(cfg.model)
        if not path.is_file():
            raise ValueError(f"workspace.model: no file '{path}'")
        try:
            spec = mujoco.MjSpec.from_file(str(path))
            for geom in list(spec.geoms):  # meshes are not needed, and often not there
                if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
                    spec.delete(geom)
            for mesh in list(spec.meshes):
                spec.delete(mesh)
            spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6
            self._model = spec.compile()
        except ValueError as error:
            raise ValueError(f"workspace.model: {path}: {error}") from error
        self._cfg, self._joints = cfg, joints
        self._data = mujoco.MjData(self._model)
        self._kinematics = mujoco.mj_kinematics
        self._point = self._find_point()
        self._places = {name: self._place(name) for name in joints}

    def misfit(self, command: Mapping[str, float], before: Mapping[str, float]) -> str | None:
        """Why a command may not be executed, because the point would leave the box; or None."""
        point = self.point(command)
        if self._outside(point) <= _SLACK:
            return None
        if self._outside(point) <= self._outside(self.point(before)) + _SLACK:
            return None
        low, high = self._cfg.low, self._cfg.high
        return (
            f"{self._cfg.point} would be at {_shown(point)} m, allowed: {_shown(low)} to "
            f"{_shown(high)}"
        )

    def point(self, command: Mapping[str, float]) -> np.ndarray:
        """Where the point is with a command, [x, y, z] in m."""
        for name, (address, offset, factor) in self._places.items():
            self._data.qpos[address] = offset + factor * command[name]
        self._kinematics(self._model, self._data)
        return self._point.xpos.copy()

    def _outside(self, point: np.ndarray) -> float:
        low, high = np.asarray(self._cfg.low), np.asarray(self._cfg.high)
        return float(np.linalg.norm(point - np.clip(point, low, high)))

    def _find_point(self):
        model, name = self._model, self._cfg.point
        sites = [model.site(index).name for index in range(model.nsite)]
        bodies = [model.body(index).name for index in range(model.nbody)]
        if name in sites:
            return self._data.site(name)
        if name in bodies:
            return self._data.body(name)
        raise ValueError(
            f"workspace.point: the model has no site or body '{name}'"
            f"{did_you_mean(name, [*sites, *bodies])}"
        )

    def _place(self, name: str) -> tuple[int, float, float]:
        """Of a joint: its address in qpos, and the offset and factor that turn its unit into the
        model's."""
        model, unit = self._model, self._joints[name].unit
        asked = self._cfg.joints.get(name, name.removesuffix(".pos"))
        known = [model.joint(index).name for index in range(model.njnt)]
        if asked not in known:
            raise ValueError(
                f"workspace: the model has no joint '{asked}'{did_you_mean(asked, known)}; name "
                f"the one of {name} under workspace.joints"
            )
        if unit not in KINEMATIC_UNITS:
            raise ValueError(
                f"workspace: {name} is in '{unit}', but a model needs one of "
                f"{', '.join(KINEMATIC_UNITS)}"
            )
        joint = model.joint(asked)
        if unit not in FRACTIONS:
            return joint.qposadr[0], 0.0, math.pi / 180 if unit == "deg" else 1.0
        if not model.jnt_limited[joint.id]:
            raise ValueError(f"workspace: {name} is in '{unit}', but '{asked}' has no range")
        (low, high), (first, last) = joint.range, FRACTIONS[unit]
        factor = (high - low) / (last - first)
        return joint.qposadr[0], low - factor * first, factor


def _shown(point) -> str:
    return "(" + ", ".join(f"{value:.3f}" for value in point) + ")"
