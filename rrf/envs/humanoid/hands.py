"""Two three-fingered hands for mjlab's G1, in the manner of Unitree's Dex3-1.

Joints, axes, ranges, lengths, masses, inertias and largest torques are those of the G1 with Dex3-1
hands (unitree_ros d6f13aa, robots/g1_description/g1_29dof_with_hand_rev_1_0.xml, BSD-3). The shapes
are ours: boxes and capsules of about the size of the real links. A hand's x axis points from the
wrist to the fingers. The left palm looks along -y, the right one along +y. Two fingers (index,
middle) bend about z towards the palm, and the thumb towards the fingers.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
import typing

import mujoco
import numpy as np

from rrf.envs.humanoid.command import HAND_JOINTS, HANDS, HIGH, LOW, SIDES

STIFFNESS, DAMPING, ARMATURE = 4.0, 0.3, 0.01  # Nm/rad, Nm s/rad, kg m^2; ours
_FRICTION = (1.2, 0.01, 0.0005)
_DARK, _LIGHT = (0.2, 0.2, 0.22, 1.0), (0.7, 0.7, 0.72, 1.0)
RELAXED = (0.0, 0.0, 0.3, -0.3, -0.3, -0.3, -0.3)
"""Angles of a left hand that does nothing, rad."""
GRASP = (0.098, -0.072, 0.0)
"""Middle of what a left hand holds, in the frame of its wrist_yaw_link, in m; there is a site
`left_grasp`, and for the right hand its mirror image."""


@dataclasses.dataclass(frozen=True)
class _Link:
    """A link of the left hand. The right one is its mirror image."""

    name: str
    parent: str
    pos: tuple[float, float, float]
    axis: tuple[float, float, float]
    mass: float
    ipos: tuple[float, float, float]
    iquat: tuple[float, float, float, float]
    inertia: tuple[float, float, float]
    torque: float
    end: tuple[float, float, float]  # the capsule goes from the joint to here
    radius: float


_NEAR = (0.0588507, (1.28514e-05, 1.22902e-05, 5.9666e-06))  # mass and inertia of inner links
_FAR = (0.0203063, (4.61314e-06, 3.86645e-06, 1.53495e-06))  # of outer ones
_WRIST_MASS, _WRIST_INERTIA = 0.457415, (0.00105989, 0.000895419, 0.000323842)  # with the palm
_WRIST_IPOS = (0.0885506, 0.00212216, -0.000374562)
_WRIST_IQUAT = (0.487149, 0.493844, 0.513241, 0.505358)


def _finger(name: str, z: float) -> tuple[_Link, _Link]:
    inner = _Link(
        name=f"{name}_0",
        parent="",
        pos=(0.1192, 0.0046, z),
        axis=(0.0, 0.0, 1.0),
        mass=_NEAR[0],
        ipos=(0.0354744, 0.000827888, 0.0003809),
        iquat=(0.391313, 0.552395, 0.417187, 0.606373),
        inertia=_NEAR[1],
        torque=1.4,
        end=(0.0458, 0.0, 0.0),
        radius=0.011,
    )
    outer = _Link(
        name=f"{name}_1",
        parent=inner.name,
        pos=inner.end,
        axis=(0.0, 0.0, 1.0),
        mass=_FAR[0],
        ipos=(0.0262819, 0.00171735, -0.000107789),
        iquat=(0.502612, 0.491799, 0.502639, 0.502861),
        inertia=_FAR[1],
        torque=1.4,
        end=(0.043, 0.0, 0.0),
        radius=0.01,
    )
    return inner, outer


_LINKS = (
    _Link(
        name="thumb_0",
        parent="",
        pos=(0.067, 0.003, 0.0),
        axis=(0.0, 1.0, 0.0),
        mass=0.0862366,
        ipos=(-0.000884246, -0.00863407, 0.000944293),
        iquat=(0.462991, 0.643965, -0.460173, 0.398986),
        inertia=(1.6546e-05, 1.60058e-05, 1.43741e-05),
        torque=2.45,
        end=(-0.0025, -0.0193, 0.0),
        radius=0.013,
    ),
    _Link(
        name="thumb_1",
        parent="thumb_0",
        pos=(-0.0025, -0.0193, 0.0),
        axis=(0.0, 0.0, 1.0),
        mass=_NEAR[0],
        ipos=(-0.000827888, -0.0354744, -0.0003809),
        iquat=(0.685598, 0.705471, -0.15207, 0.0956069),
        inertia=_NEAR[1],
        torque=1.4,
        end=(0.0, -0.0458, 0.0),
        radius=0.011,
    ),
    _Link(
        name="thumb_2",
        parent="thumb_1",
        pos=(0.0, -0.0458, 0.0),
        axis=(0.0, 0.0, 1.0),
        mass=_FAR[0],
        ipos=(-0.00171735, -0.0262819, 0.000107789),
        iquat=(0.703174, 0.710977, -0.00017564, -0.00766553),
        inertia=_FAR[1],
        torque=1.4,
        end=(0.0, -0.043, 0.0),
        radius=0.01,
    ),
    *_finger("middle", -0.0285),
    *_finger("index", 0.0285),
)


def attach(robot: mujoco.MjSpec) -> None:
    """Give the robot of `body.spec` hands in place of its rubber ones.

    Each joint has a position actuator of its name. Hands collide with the world and with the rest
    of the robot, not with each other.
    """
    ranges = dict(zip(HAND_JOINTS, zip(LOW[HANDS], HIGH[HANDS], strict=True), strict=True))
    for side in SIDES:
        mirror = 1.0 if side == "left" else -1.0
        wrist = robot.body(f"{side}_wrist_yaw_link")
        for geom in list(wrist.geoms):
            if geom.meshname == f"{side}_rubber_hand" or geom.name == f"{side}_hand_collision":
                robot.delete(geom)
        robot.delete(robot.mesh(f"{side}_rubber_hand"))
        _weigh(wrist, _WRIST_MASS, _WRIST_IPOS, _WRIST_IQUAT, _WRIST_INERTIA, mirror)
        _shape(
            wrist,
            name=f"{side}_palm",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[0.04, 0.015, 0.036],
            pos=[0.083, 0.006 * mirror, 0.0],
            rgba=_LIGHT,
        )
        wrist.add_site(
            name=f"{side}_grasp", pos=_mirrored(GRASP, mirror), size=[0.005] * 3, group=5
        )
        bodies = {"": wrist}
        for link in _LINKS:
            body = bodies[link.parent].add_body(
                name=f"{side}_hand_{link.name}_link", pos=_mirrored(link.pos, mirror)
            )
            bodies[link.name] = body
            _weigh(body, link.mass, link.ipos, link.iquat, link.inertia, mirror)
            name = f"{side}_hand_{link.name}_joint"
            body.add_joint(name=name, axis=link.axis, range=ranges[name], armature=ARMATURE)
            is_tip = not any(other.parent == link.name for other in _LINKS)
            _shape(
                body,
                name=f"{side}_{link.name}",
                type=mujoco.mjtGeom.mjGEOM_CAPSULE,
                size=[link.radius, 0, 0],
                fromto=[0, 0, 0, *_mirrored(link.end, mirror)],
                rgba=_DARK if is_tip else _LIGHT,
            )
            actuator = robot.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            actuator.set_to_position(kp=STIFFNESS, kv=DAMPING)
            actuator.forcelimited = True
            actuator.forcerange = [-link.torque, link.torque]


def pose(side: str, left: typing.Sequence[float]) -> dict[str, float]:
    """Joint -> angle of a hand, rad, given those of a left hand: thumb 0 to 2, middle 0 and 1,
    index 0 and 1. The right one is their mirror image."""
    names = [name for name in HAND_JOINTS if name.startswith(side)]
    signs = (1, 1, 1, 1, 1, 1, 1) if side == "left" else (1, -1, -1, -1, -1, -1, -1)
    return {name: sign * angle for name, sign, angle in zip(names, signs, left, strict=True)}


def _mirrored(place: tuple[float, float, float], mirror: float) -> list[float]:
    return [place[0], mirror * place[1], place[2]]


def _weigh(
    body: mujoco.MjsBody,
    mass: float,
    ipos: tuple[float, float, float],
    iquat: tuple[float, float, float, float],
    inertia: tuple[float, float, float],
    mirror: float,
) -> None:
    w, x, y, z = iquat
    body.mass, body.ipos, body.inertia = mass, _mirrored(ipos, mirror), inertia
    body.iquat = np.array([w, mirror * x, y, mirror * z])
    body.explicitinertial = True


def _shape(body: mujoco.MjsBody, **shape) -> None:
    """A geom without mass that is seen and collides, with enough friction to hold things."""
    body.add_geom(
        mass=0.0,
        group=2,
        contype=0,
        conaffinity=1,
        condim=4,
        priority=1,
        friction=_FRICTION,
        solref=[0.01, 1.0],
        **shape,
    )
