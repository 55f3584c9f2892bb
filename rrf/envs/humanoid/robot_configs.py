"""The facts by which the whole-body task takes another robot than the G1. Imports no simulator."""

import typing
from collections.abc import Mapping

from rrf.config import Cfg, configclass

ROLES = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
"""Of the joints of a leg, from above."""
WAIST_ROLES = ("waist_yaw", "waist_roll", "waist_pitch")
_MOTOR = ("stiffness", "damping", "torque limit")


@configclass
class RobotCfg(Cfg):
    """A humanoid in an MJCF file, whose root body has a free joint, x forward and z up.

    Joints that are named nowhere are stiff. Left joints come before right ones.
    """

    model: str
    """The MJCF file, in the workspace or anywhere."""
    legs: list[str]
    """Twelve joints: hip_pitch, hip_roll, hip_yaw, knee, ankle_pitch, ankle_roll of the left leg,
    then of the right one."""
    waist: list[str]
    """Three joints: yaw, roll, pitch."""
    arms: list[str] = []
    """Joints of the arms that the command moves, the left arm's first; as many on each side."""
    feet: list[str]
    """The two bodies that stand on the ground, left and right."""
    torso: str
    """The body above the waist."""
    hands: list[str] = []
    """Bodies that carry something in training; none is allowed."""
    motors: Mapping[str, list[float]] = {}
    """Part of a joint's name -> stiffness (Nm/rad), damping (Nm s/rad) and largest torque (Nm) of
    its motor; the first that fits. Joints that fit none have those of their position actuator in
    the model."""
    pose: Mapping[str, float] = {}
    """Part of a joint's name -> its angle in the default pose, rad; the first that fits. By default
    the knees are bent by 0.3, and arms and waist are straight."""

    def __post_init__(self):
        for name, count, what in (
            ("legs", 12, f"{', '.join(ROLES)} of the left leg, then of the right one"),
            ("waist", 3, ", ".join(WAIST_ROLES)),
            ("feet", 2, "the left and the right one"),
        ):
            given = getattr(self, name)
            if len(given) != count:
                raise ValueError(f"robot.{name} has {len(given)} names, expected {count}: {what}")
        if len(self.arms) % 2:
            raise ValueError(
                f"robot.arms has {len(self.arms)} joints, expected as many on each side, left first"
            )
        joints = [*self.legs, *self.waist, *self.arms]
        twice = sorted({name for name in joints if joints.count(name) > 1})
        if twice:
            raise ValueError(f"robot: the joint '{twice[0]}' is named twice")
        for part, motor in self.motors.items():
            if len(motor) != len(_MOTOR) or min(motor) < 0 or motor[0] <= 0 or motor[2] <= 0:
                raise ValueError(
                    f"robot.motors[{part}] is {motor}, expected {', '.join(_MOTOR)}; stiffness and "
                    "limit above 0"
                )

    def role(self, joint: str) -> str:
        """What a driven joint does: one of `ROLES` or `WAIST_ROLES`."""
        driven = dict(zip(self.legs, 2 * ROLES, strict=True))
        return (driven | dict(zip(self.waist, WAIST_ROLES, strict=True)))[joint]


def of_joint(joint: str, table: Mapping[str, typing.Any]) -> typing.Any:
    """The first entry of a table whose key is a part of a joint's name, or None."""
    return next((value for part, value in table.items() if part in joint), None)
