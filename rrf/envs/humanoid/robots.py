"""Robots of the whole-body task: the G1, and others by their facts (`RobotCfg`).

Lengths of the task (heights, steps, the width of the stance) are the G1's times the ratio of the
standing heights, `Robot.scale`. A foot touches the ground with four balls at the corners of the
box around its geoms; nothing else collides.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
import functools
import hashlib
import itertools
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

import mujoco
import numpy as np

from rrf import workspace
from rrf.config import did_you_mean
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.command import SIDES, Signal
from rrf.envs.humanoid.robot_configs import RobotCfg, of_joint
from rrf.envs.humanoid.standing import Standing

BODY_SIGNALS = ("vx", "vy", "vyaw", "torso_roll", "torso_pitch", "torso_yaw", "height")
"""Of the command of every robot, after its arms' joints."""
_AXES = {"pitch": (0.0, 1.0, 0.0), "knee": (0.0, 1.0, 0.0), "roll": (1.0, 0.0, 0.0)}
_UP = (0.0, 0.0, 1.0)
_BENT = {"hip_pitch": -0.1, "knee": 0.3, "ankle_pitch": -0.2}
_ARM_SHARE = 0.6  # of an arm's range, around its default, that training moves it through
_BALL_M = 0.01
_MIN_REACH = 0.1  # rad


@dataclasses.dataclass(frozen=True, eq=False)
class Robot:
    """What the whole-body task needs to know of a robot. Lengths in m, angles in rad."""

    name: str
    driven: tuple[str, ...]
    """The 15 joints that a whole-body policy drives: left leg, right leg, waist."""
    arms: tuple[str, ...]
    """The joints of the arms that it sees."""
    commanded: tuple[str, ...]
    """All joints of the arms that the levels above command."""
    signals: tuple[Signal, ...]
    """What the levels above send."""
    arm_low: np.ndarray
    arm_high: np.ndarray
    """Where training moves `arms`."""
    tall: float
    """Height of the pelvis of who stands and is told nothing else."""
    motor: Callable[[str], tuple[float, float, float]]
    """Of a joint: stiffness (Nm/rad), damping (Nm s/rad), largest torque (Nm)."""
    default_pose: Callable[[tuple[str, ...]], np.ndarray]
    """Angles of joints."""
    spec: Callable[[], typing.Any]
    """The robot on flat ground, as light as training needs it. Sites left_foot and right_foot are
    below the soles, whose geoms are left_sole0 to right_sole3."""
    shown_spec: Callable[[], typing.Any]
    """The robot on flat ground, for pictures."""
    feet: tuple[str, ...]
    """The bodies with the soles."""
    touch_box: tuple[Sequence[float], Sequence[float]]
    """Middle and half size of a box around a sole, in its body's frame, in which contacts count."""
    torso: str
    hands: tuple[str, ...]
    """Bodies that carry something in training."""
    digest: str = ""
    """Of its MJCF file; empty for the G1, whose model mjlab's version tells."""
    waist_limits: tuple[float, float] = (0.45, 0.45)
    """How far the waist rolls and pitches; beyond it, the pelvis leans."""

    @property
    def observed(self) -> tuple[str, ...]:
        """The joints that a whole-body policy sees."""
        return self.driven + self.arms

    @property
    def command_names(self) -> tuple[str, ...]:
        """The numbers of the command that a whole-body policy takes."""
        return (*self.arms, *BODY_SIGNALS)

    @property
    def num_proprio(self) -> int:
        """Numbers that it sees of the robot: 93 of a G1."""
        return 7 + 3 * len(self.observed) + 2 + len(self.driven)

    @property
    def scale(self) -> float:
        """How tall it is, beside a G1."""
        return self.tall / body.TALL

    @property
    def min_height(self) -> float:
        """Height of the pelvis below which it has fallen."""
        return body.MIN_HEIGHT * self.scale

    @functools.cached_property
    def standing(self) -> Standing:
        """The poses in which it stands; computed in some tenths of a second."""
        angles = self.default_pose(self.observed).tolist()
        pose = dict(zip(self.observed, angles, strict=True))
        return Standing(self.spec().compile(), self.driven, pose, self.waist_limits, self.scale)

    def signal(self, name: str) -> Signal:
        """A number of the command."""
        return next(signal for signal in self.signals if signal.name == name)


G1 = Robot(
    name="unitree_g1",
    driven=body.DRIVEN,
    arms=body.PROXIMAL,
    commanded=command.ARM_JOINTS,
    signals=command.COMMAND,
    arm_low=np.array([-1.6, -0.2, -1.2, -0.6, -1.6, -1.4, -1.2, -0.6]),
    arm_high=np.array([1.0, 1.4, 1.2, 1.6, 1.0, 0.2, 1.2, 1.6]),  # in front of the robot
    tall=body.TALL,
    motor=body.motor,
    default_pose=body.default_pose,
    spec=body.light_spec,
    shown_spec=body.shown_spec,
    feet=tuple(f"{side}_ankle_roll_link" for side in SIDES),
    touch_box=((0.035, 0, -0.03), (0.12, 0.06, 0.025)),
    torso="torso_link",
    hands=tuple(f"{side}_wrist_yaw_link" for side in SIDES),
)


def robot_of(cfg: RobotCfg | None) -> Robot:
    """The robot of a config; none: the G1.

    Raises:
        ValueError: If the model lacks what the config names, or is built in another way; the
            message says what, and what to write instead.
    """
    return G1 if cfg is None else _Own(cfg).robot()


class _Own:
    """Reads a robot from its MJCF file."""

    def __init__(self, cfg: RobotCfg):
        self.cfg, self.path = cfg, workspace.home() / cfg.model
        if not self.path.is_file():
            raise ValueError(f"robot.model: no file {self.path}")
        self._given = self._read().compile()
        self._check_names()
        self._motors = {name: self._motor(name) for name in (*cfg.legs, *cfg.waist, *cfg.arms)}
        self._corners = [self._sole(name) for name in cfg.feet]
        self._model = self._spec().compile()
        self._data = mujoco.MjData(self._model)
        self._check_axes()

    def robot(self) -> Robot:
        cfg, arms = self.cfg, tuple(self.cfg.arms)
        low, high = self._model.jnt_range[[self._model.joint(name).id for name in arms]].T
        rest = self._default(arms)
        tall = self._height()
        low_box, high_box = np.array(self._corners[0])
        limits = [abs(self._model.joint(name).range).min() for name in cfg.waist[1:]]
        return Robot(
            name=Path(cfg.model).stem,
            driven=(*cfg.legs, *cfg.waist),
            arms=arms,
            commanded=arms,
            signals=_signals(arms, low, high, tall / body.TALL),
            arm_low=rest + _ARM_SHARE * (low - rest),
            arm_high=rest + _ARM_SHARE * (high - rest),
            tall=tall,
            motor=lambda joint: self._motors[joint],
            default_pose=self._default,
            spec=self._spec,
            shown_spec=self._spec,
            feet=tuple(cfg.feet),
            touch_box=((low_box + high_box) / 2, (high_box - low_box) / 2 + 0.02),
            torso=cfg.torso,
            hands=tuple(cfg.hands),
            digest=hashlib.sha256(self.path.read_bytes()).hexdigest()[:16],
            waist_limits=(0.9 * limits[0], 0.9 * limits[1]),
        )

    def _read(self) -> typing.Any:
        try:
            return mujoco.MjSpec.from_file(str(self.path))
        except ValueError as error:
            raise ValueError(f"robot.model: MuJoCo cannot read {self.path}: {error}") from error

    def _check_names(self) -> None:
        model, cfg = self._given, self.cfg
        joints = [model.joint(number).name for number in range(model.njnt)]
        bodies = [model.body(number).name for number in range(model.nbody)]
        if not model.njnt or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
            raise ValueError(
                f"{self.path}: the root body has no free joint; give it <freejoint/>, and put the "
                "robot before everything else that moves"
            )
        for field in ("legs", "waist", "arms"):
            for name in getattr(cfg, field):
                if name not in joints:
                    raise ValueError(
                        f"robot.{field}: {self.path} has no joint '{name}'"
                        f"{did_you_mean(name, joints)}"
                    )
                reach = np.ptp(model.joint(name).range)
                if 0 < reach < _MIN_REACH:
                    raise ValueError(
                        f"robot.{field}: the joint '{name}' turns by {reach:.2g} rad only; angles "
                        'of an MJCF are in degrees unless it says <compiler angle="radian"/>'
                    )
                if not reach:
                    raise ValueError(
                        f"robot.{field}: the joint '{name}' has no range in {self.path}"
                    )
        for field, names in (("feet", cfg.feet), ("torso", [cfg.torso]), ("hands", cfg.hands)):
            for name in names:
                if name not in bodies:
                    near = did_you_mean(name, bodies)
                    raise ValueError(f"robot.{field}: {self.path} has no body '{name}'{near}")

    def _motor(self, joint: str) -> tuple[float, float, float]:
        named = of_joint(joint, self.cfg.motors)
        if named is not None:
            return tuple(named)
        model, number = self._given, self._given.joint(joint).id
        for motor in np.flatnonzero(model.actuator_trnid[:, 0] == number):
            stiffness, damping = model.actuator_gainprm[motor, 0], -model.actuator_biasprm[motor, 2]
            limit = model.actuator_forcerange[motor, 1]
            if model.actuator_biasprm[motor, 1] == -stiffness and stiffness > 0 and limit > 0:
                return float(stiffness), float(damping), float(limit)
        raise ValueError(
            f"robot.motors: the gains of '{joint}' are unknown: {self.path} gives it no position "
            "actuator with kp, kv and forcerange; write them as "
            f"motors: {{{joint}: [stiffness, damping, torque limit]}}"
        )

    def _sole(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest corner of the box around the geoms of a foot, in its frame."""
        model = self._given
        geoms = np.flatnonzero(model.geom_bodyid == model.body(name).id)
        if not len(geoms):
            raise ValueError(
                f"robot.feet: the body '{name}' has no geoms to stand on in {self.path}"
            )
        corners = []
        for geom in geoms:
            turn = np.empty(9)
            mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
            middle, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            for signs in np.ndindex(2, 2, 2):
                corner = middle + half * (2 * np.array(signs) - 1)
                corners.append(model.geom_pos[geom] + turn.reshape(3, 3) @ corner)
        return np.min(corners, 0), np.max(corners, 0)

    def _spec(self) -> typing.Any:
        cfg, spec = self.cfg, self._read()
        for part in (*spec.sensors, *spec.actuators, *spec.keys, *spec.worldbody.geoms):
            spec.delete(part)
        moved = {*cfg.legs, *cfg.waist, *cfg.arms}
        for joint in list(spec.joints):
            if joint.type != mujoco.mjtJoint.mjJNT_FREE and joint.name not in moved:
                spec.delete(joint)
        for geom in spec.geoms:  # they keep their mass
            geom.contype = geom.conaffinity = 0
        for site in list(spec.sites):
            if site.name in body.FEET:
                spec.delete(site)
        for side, name, (low, high) in zip(SIDES, cfg.feet, self._corners, strict=True):
            foot = spec.body(name)
            middle = (low + high) / 2
            foot.add_site(name=f"{side}_foot", pos=[middle[0], middle[1], low[2]])
            ends = [(low[axis] + _BALL_M, high[axis] - _BALL_M) for axis in (0, 1)]
            for number, (x, y) in enumerate(itertools.product(*ends)):
                body.add_ball(foot, f"{side}_sole{number}", (x, y, low[2] + _BALL_M), _BALL_M)
        for name in (*cfg.legs, *cfg.waist, *cfg.arms):
            body.add_motor(spec, name, *self._motors[name])
        spec.worldbody.add_geom(
            name="ground",
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            size=[20, 20, 1],
            contype=1,
            conaffinity=0,
            rgba=[0.5, 0.53, 0.57, 1],
        )
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        spec.option.timestep = 0.005
        return spec

    def _check_axes(self) -> None:
        """Joints must turn as the G1's do, or what is computed for the legs is wrong."""
        data = self._data
        data.qpos[:] = 0.0
        data.qpos[3] = 1.0
        mujoco.mj_kinematics(self._model, data)
        for name in (*self.cfg.legs, *self.cfg.waist):
            role = self.cfg.role(name)
            wanted = next((axis for part, axis in _AXES.items() if part in role), _UP)
            axis = data.xaxis[self._model.joint(name).id]
            if axis @ wanted < 0.8:
                raise ValueError(
                    f"{self.path}: '{name}' turns about ({_said(axis)}) where all joints are 0, "
                    f"but a {role} must turn about ({_said(wanted)}): x is forward, y left, z up. "
                    "Turn its axis and its range round, or name the joints in their order"
                )

    def _default(self, joints: tuple[str, ...]) -> np.ndarray:
        cfg, driven = self.cfg, {*self.cfg.legs, *self.cfg.waist}
        bent = {name: _BENT.get(cfg.role(name), 0.0) if name in driven else 0.0 for name in joints}
        given = {name: of_joint(name, cfg.pose) for name in joints}
        return np.array([bent[n] if given[n] is None else given[n] for n in joints], np.float64)

    def _height(self) -> float:
        """Of the root body in the default pose, the soles on the ground."""
        model, data = self._model, self._data
        joints = (*self.cfg.legs, *self.cfg.waist, *self.cfg.arms)
        data.qpos[body.qpos_addresses(model, joints)] = self._default(joints)
        mujoco.mj_kinematics(model, data)
        soles = [model.geom(f"{side}_sole{i}").id for side in SIDES for i in range(4)]
        return float(_BALL_M - data.geom_xpos[soles, 2].min())


def _said(axis: Sequence[float]) -> str:
    return ", ".join(f"{value + 0.0:.2g}" for value in axis)


def _signals(arms: tuple[str, ...], low, high, scale: float) -> tuple[Signal, ...]:
    joints = [
        Signal(name, "rad", "joint", float(a), float(b))
        for name, a, b in zip(arms, low, high, strict=True)
    ]
    whole = [
        dataclasses.replace(signal, low=scale * signal.low, high=scale * signal.high)
        if signal.name == "height"
        else signal
        for signal in command.COMMAND[command.BODY]
    ]
    return (*joints, *whole)
