"""The robot: a Unitree G1 of 29 joints, and its motors.

The bodies are mjlab's model (BSD-3, Unitree), found in mjlab's wheel without importing mjlab. The
gains, limits and default pose of legs, waist and arms are those of AMO's controller
(github.com/OpenTeleVision/AMO, play_amo.py, arXiv:2505.03738). The feet touch the ground with four
balls each at the corners of the soles, instead of fourteen points of seven capsules, which makes a
step twice as fast.

Legend: N robots.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import importlib.util
import typing
from pathlib import Path

import mujoco
import numpy as np

from rrf.envs.humanoid.command import ARM_JOINTS, SIDES
from rrf.lookup import require

_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
LEGS = tuple(f"{side}_{joint}_joint" for side in SIDES for joint in _LEG)
WAIST = ("waist_yaw_joint", "waist_roll_joint", "waist_pitch_joint")
DRIVEN = LEGS + WAIST
"""The 15 joints that a whole-body policy drives."""
PROXIMAL = tuple(name for name in ARM_JOINTS if "wrist" not in name)
"""The eight joints of shoulders and elbows, which move enough mass to matter for the balance."""
OBSERVED = DRIVEN + PROXIMAL
"""The 23 joints that a whole-body policy sees."""
FEET = ("left_foot", "right_foot")
"""Sites below the soles."""

_MOTORS = {  # part of a joint's name -> stiffness (Nm/rad), damping (Nm s/rad), limit (Nm)
    "hip_pitch": (150.0, 2.0, 88.0),
    "hip_roll": (150.0, 2.0, 139.0),
    "hip_yaw": (150.0, 2.0, 88.0),
    "knee": (300.0, 4.0, 139.0),
    "ankle_pitch": (80.0, 2.0, 50.0),
    "ankle_roll": (20.0, 1.0, 50.0),
    "waist_yaw": (400.0, 15.0, 88.0),
    "waist_roll": (400.0, 15.0, 50.0),
    "waist_pitch": (400.0, 15.0, 50.0),
    "shoulder_pitch": (80.0, 2.0, 25.0),
    "shoulder_roll": (80.0, 2.0, 25.0),
    "shoulder_yaw": (40.0, 1.0, 25.0),
    "elbow": (60.0, 1.0, 25.0),
    "wrist_roll": (40.0, 1.0, 25.0),  # AMO has no wrists; these are ours
    "wrist_pitch": (20.0, 0.5, 5.0),
    "wrist_yaw": (20.0, 0.5, 5.0),
}
_ARMATURES = {  # kg m^2, as in mjlab's config of the robot
    "hip_roll": 0.025101925,
    "knee": 0.025101925,
    "hip_": 0.010177520,
    "waist_yaw": 0.010177520,
    "waist_": 2 * 0.003609725,  # two motors each
    "ankle_": 2 * 0.003609725,
    "wrist_pitch": 0.00425,
    "wrist_yaw": 0.00425,
    "": 0.003609725,
}
_DEFAULT = {
    "hip_pitch": -0.1,
    "knee": 0.3,
    "ankle_pitch": -0.2,
    "shoulder_pitch": 0.5,
    "left_shoulder_yaw": 0.2,
    "right_shoulder_yaw": -0.2,
    "elbow": 0.3,
}
_SOLE = ((-0.05, 0.02), (-0.05, -0.02), (0.12, 0.03), (0.12, -0.03))  # x, y of a foot's balls, m
_SOLE_Z, _SOLE_RADIUS = -0.025, 0.01
_DIVERGED = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
)
MIN_HEIGHT = 0.36
"""Height of the pelvis, in m, below which the robot has fallen."""
MAX_TILT = 1.0
"""Angle of the pelvis from upright, in rad, beyond which the robot has fallen."""
TALL = 0.74
"""Height of the pelvis, in m, at which the robot stands that is told nothing else."""
JOINTS = (*DRIVEN, *ARM_JOINTS)
"""All 29 joints of `spec`, in the model's order."""


def _of(joint: str, table: dict) -> object:
    return next((value for part, value in table.items() if part in joint), None)


def motor(joint: str) -> tuple[float, float, float]:
    """Stiffness (Nm/rad), damping (Nm s/rad) and largest torque (Nm) of a joint's motor."""
    return _of(joint, _MOTORS)  # type: ignore[return-value]


def default_pose(joints: tuple[str, ...]) -> np.ndarray:
    """Angles of joints in the default pose, float64, rad."""
    return np.array([_of(joint, _DEFAULT) or 0.0 for joint in joints])


def spec() -> mujoco.MjSpec:
    """The robot with meshes, motors and a free pelvis, in an empty world without ground.

    Feet collide with the world; the other parts do as mjlab's model says.

    Raises:
        ImportError: If mjlab is not installed, with the command that installs it.
    """
    found = importlib.util.find_spec("mjlab")
    if found is None or not found.submodule_search_locations:
        require("mjlab", extra="locomotion")
    assert found
    assert found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0])
    robot = mujoco.MjSpec.from_file(str(folder / "asset_zoo/robots/unitree_g1/xmls/g1.xml"))
    for camera in list(robot.cameras):
        robot.delete(camera)
    for geom in list(robot.geoms):
        if "_foot" in geom.name:
            robot.delete(geom)
    for side in SIDES:
        foot = robot.body(f"{side}_ankle_roll_link")
        for number, (x, y) in enumerate(_SOLE):
            add_ball(foot, f"{side}_sole{number}", (x, y, _SOLE_Z), _SOLE_RADIUS)
    for joint in robot.joints:
        if joint.type != mujoco.mjtJoint.mjJNT_HINGE:
            continue
        joint.armature = _of(joint.name, _ARMATURES)
        add_motor(robot, joint.name, *motor(joint.name))
    robot.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    robot.option.timestep = 0.005
    return robot


def add_ball(foot: typing.Any, name: str, place: tuple[float, float, float], radius: float) -> None:
    """Add a ball to a foot, without mass, on which it stands."""
    foot.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        size=[radius, 0, 0],
        pos=place,
        mass=0.0,
        group=3,
        contype=0,
        conaffinity=1,
        condim=3,
        priority=1,
        friction=[0.8, 0.005, 0.0001],
    )


def add_motor(
    robot: mujoco.MjSpec, joint: str, stiffness: float, damping: float, limit: float
) -> None:
    """Drive a joint to angles; Nm/rad, Nm s/rad, Nm."""
    motor = robot.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.set_to_position(kp=stiffness, kv=damping)
    motor.forcelimited = True
    motor.forcerange = [-limit, limit]


def light_spec() -> mujoco.MjSpec:
    """The robot on flat ground as the legs' policy learns with it: without meshes, wrists and
    sensors, and only its soles collide.
    """
    robot = spec()
    for geom in list(robot.geoms):
        if "_sole" not in geom.name:
            robot.delete(geom)
    for part in (*robot.meshes, *robot.sensors):
        robot.delete(part)
    for actuator in list(robot.actuators):
        if "wrist" in actuator.name:
            robot.delete(actuator)
    for joint in list(robot.joints):
        if "wrist" in joint.name:
            robot.delete(joint)
    robot.worldbody.add_geom(
        name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=1, conaffinity=0
    )
    return robot


def shown_spec() -> mujoco.MjSpec:
    """The robot with its meshes on a chequered ground, for pictures."""
    shown = spec()
    shown.add_texture(
        name="ground",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.55, 0.58, 0.62],
        rgb2=[0.45, 0.48, 0.52],
        width=256,
        height=256,
    )
    material = shown.add_material(name="ground", texrepeat=[2, 2], texuniform=True)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    shown.worldbody.add_geom(
        name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[20, 20, 1], material="ground"
    )
    return shown


def shown_data(
    model: mujoco.MjModel,
    joints: tuple[str, ...],
    angles: np.ndarray,
    pelvis_7: np.ndarray,
    speed_6: np.ndarray,
) -> mujoco.MjData:
    """A state of a model: angles of joints, rad, place and orientation of the pelvis, [7], and its
    velocities, [6]."""
    data = mujoco.MjData(model)
    data.qpos[:7], data.qvel[:6] = pelvis_7, speed_6
    data.qpos[qpos_addresses(model, joints)] = angles
    mujoco.mj_forward(model, data)
    return data


def has_fallen(qpos_nq: np.ndarray, min_height: float = MIN_HEIGHT) -> np.ndarray:
    """Who has fallen, bool [N], by the place and orientation of the pelvis."""
    upright_n = 1 - 2 * np.square(qpos_nq[:, 4:6]).sum(1)  # cosine of the tilt
    return (qpos_nq[:, 2] < min_height) | (upright_n < np.cos(MAX_TILT))


def is_lost(data: mujoco.MjData) -> bool:
    """Whether the robot of a state has fallen, or its physics has no finite numbers any more."""
    diverged = any(data.warning[kind].number for kind in _DIVERGED)
    return bool(diverged or has_fallen(data.qpos[None])[0])


def qpos_addresses(model: mujoco.MjModel, joints: tuple[str, ...]) -> np.ndarray:
    """Where the angles of joints stand in qpos, int64.

    Raises:
        ValueError: If the model lacks one of them; the message names it.
    """
    return model.jnt_qposadr[_joint_ids(model, joints)].astype(np.int64)


def qvel_addresses(model: mujoco.MjModel, joints: tuple[str, ...]) -> np.ndarray:
    """Where the velocities of joints stand in qvel, int64. Raises as `qpos_addresses` does."""
    return model.jnt_dofadr[_joint_ids(model, joints)].astype(np.int64)


def actuator_ids(model: mujoco.MjModel, joints: tuple[str, ...]) -> np.ndarray:
    """The motors of joints, int64. Raises as `qpos_addresses` does."""
    ids = _joint_ids(model, joints)
    of_joint = {int(joint): i for i, joint in enumerate(model.actuator_trnid[:, 0])}
    for joint, name in zip(ids, joints, strict=True):
        if int(joint) not in of_joint:
            raise ValueError(f"the robot has no motor at the joint '{name}'")
    return np.array([of_joint[int(joint)] for joint in ids], np.int64)


def _joint_ids(model: mujoco.MjModel, joints: tuple[str, ...]) -> list[int]:
    ids = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name) for name in joints]
    if -1 in ids:
        missing = joints[ids.index(-1)]
        hint = "; it has no hands" if "_hand_" in missing else ""
        raise ValueError(f"the robot has no joint '{missing}'{hint}")
    return ids
