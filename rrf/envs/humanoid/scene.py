"""The place where the G1 works: flat ground, a table, and cubes, cylinders and balls on it.

One model has every object there may be. Those that an episode does not use are parked far away and
put back there with every action. Plates are bodies without joints that an episode moves. The
world's x axis points from the robot to the table, y to its left.

An initial state's layout depends on task, seed and index alone, and the random stream does not
depend on which tasks there are.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses
import functools
import math
import typing
import zlib
from collections.abc import Mapping

import mujoco
import numpy as np

from rrf.envs.humanoid import body, hands, kinematics
from rrf.envs.humanoid.command import ARM_JOINTS, ARMS, HAND_JOINTS, NAMES, SIDES
from rrf.envs.humanoid.robots import G1
from rrf.envs.humanoid.tasks import COLORS, SHAPES, Task

if typing.TYPE_CHECKING:
    from rrf.envs.vec_env import InitialState

CAMERAS = ("ego", "outside")
TABLE_TOP, TABLE_NEAR = 0.74, 0.20
"""Height of the table's top, and where its near edge is (x), in m."""
_TABLE_HALF = (0.25, 0.5, 0.015)
OBJECTS = tuple(f"{color}_{shape}" for color in COLORS for shape in SHAPES)
_RGBA = {
    "red": (0.85, 0.12, 0.1, 1.0),
    "green": (0.1, 0.6, 0.15, 1.0),
    "blue": (0.1, 0.25, 0.85, 1.0),
    "yellow": (0.95, 0.8, 0.1, 1.0),
}
_SIZES = {
    "cube": (mujoco.mjtGeom.mjGEOM_BOX, (0.035, 0.035, 0.035), 0.035),
    "cylinder": (mujoco.mjtGeom.mjGEOM_CYLINDER, (0.033, 0.038, 0.0), 0.038),
    "ball": (mujoco.mjtGeom.mjGEOM_SPHERE, (0.036, 0.0, 0.0), 0.036),
}  # shape, size, height of its middle above what it lies on; m
_MASS = 0.08
PLATE_RADIUS, _PLATE_HALF = 0.075, 0.004
_PARKED = (-40.0, 0.0, 1.0)
_GAP, _PLATE_GAP, _PUSH_GAP = 0.14, 0.14, 0.22
"""Smallest distance of what lies on the table."""
_FAR_START = ((-0.9, -0.25, -0.3), (-0.4, 0.25, 0.3))
JOINTS = (*body.JOINTS, *HAND_JOINTS)
"""The 43 joints in the order in which a state has them."""
_CAMERA_POS, _CAMERA_PITCH = (0.0576235, 0.01753, 0.42987), 0.8307767
"""The D435 in the robot's head (unitree_ros d6f13aa, g1_29dof_with_hand_rev_1_0.urdf)."""
START_HEIGHT = 0.75
"""Height of the pelvis when an episode begins, m."""
READY = {
    "left": (0.5, 0.6, 0.6, -0.6, 0.9, -0.25, 0.0),
    "right": (0.5, -0.6, -0.6, -0.6, -0.9, -0.25, 0.0),
}
"""Angles of the arms when an episode begins, rad: the hands are apart, where they hide nothing that
an instruction names from the camera in the head, and 8 cm or more from all things. Shoulders and
elbows are in the range that whole-body policies train with; beyond it they fall."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where everything is when an episode begins. Places in m, angles in rad."""

    robot: tuple[float, float, float]
    """x, y and heading of the pelvis."""
    objects: Mapping[str, tuple[float, float, float]]
    """x, y and angle about z of the objects on the table."""
    plates: Mapping[str, tuple[float, float]]
    """Colour -> x, y."""


def rest_height(shape: str) -> float:
    """How high the middle of a shape is above what it lies on, m."""
    return _SIZES[shape][2]


@functools.cache
def spec() -> mujoco.MjSpec:
    """Robot with hands, ground, table, objects and cameras. Do not change it; it is shared."""
    scene = body.spec()
    hands.attach(scene)
    world = scene.worldbody
    scene.visual.headlight.ambient = [0.45] * 3
    scene.visual.headlight.diffuse = [0.45] * 3
    scene.visual.headlight.specular = [0.0] * 3
    world.add_light(
        name="lamp", pos=[0, 0, 3], dir=[0.3, 0.2, -1], diffuse=[0.4] * 3, castshadow=False
    )
    world.add_geom(
        name="ground",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[5, 5, 1],
        contype=1,
        conaffinity=0,
        rgba=[0.45, 0.5, 0.55, 1],
    )
    center = [TABLE_NEAR + _TABLE_HALF[0], 0.0, TABLE_TOP - _TABLE_HALF[2]]
    _add_box(
        world, "table", center, _TABLE_HALF, (0.8, 0.78, 0.72, 1.0), friction=(0.6, 0.01, 0.001)
    )
    half = (TABLE_TOP - 2 * _TABLE_HALF[2]) / 2
    for number, y in enumerate((-0.45, 0.45)):
        place = [TABLE_NEAR + 0.4, y, half]
        _add_box(world, f"table_leg{number}", place, (0.03, 0.03, half), (0.4, 0.4, 0.42, 1.0))
    for color in COLORS:
        plate = world.add_body(name=f"{color}_plate", mocap=True, pos=_PARKED)
        plate.add_geom(
            name=f"{color}_plate",
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            size=[PLATE_RADIUS, _PLATE_HALF, 0],
            rgba=_RGBA[color],
            friction=[0.8, 0.01, 0.001],
        )
    for name in OBJECTS:
        color, _, shape = name.partition("_")
        kind, size, _ = _SIZES[shape]
        thing = world.add_body(name=name, pos=_PARKED)
        thing.add_freejoint(name=name)
        thing.add_geom(
            name=name,
            type=kind,
            size=size,
            mass=_MASS,
            rgba=_RGBA[color],
            friction=[0.6, 0.01, 0.001],
            condim=6 if shape == "ball" else 4,  # a ball comes to rest
        )
    _add_cameras(scene)
    scene.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    scene.option.impratio = 10.0  # what is held does not creep out of the fingers
    return scene


def _add_box(world, name: str, place, half, rgba, **more) -> None:
    world.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=place, size=half, rgba=rgba, **more
    )


def _add_cameras(scene: mujoco.MjSpec) -> None:
    cos, sin = np.cos(_CAMERA_PITCH), np.sin(_CAMERA_PITCH)
    ahead, left = np.array([cos, 0.0, -sin]), np.array([0.0, 1.0, 0.0])
    scene.body("torso_link").add_camera(
        name="ego", pos=_CAMERA_POS, quat=_camera_quat(-left, np.cross(ahead, left)), fovy=70
    )
    place, looks_at = np.array([1.35, -1.15, 1.5]), np.array([0.1, 0.0, 0.75])
    backward = (place - looks_at) / np.linalg.norm(place - looks_at)
    right = np.cross([0.0, 0.0, 1.0], backward)
    right /= np.linalg.norm(right)
    scene.worldbody.add_camera(
        name="outside", pos=place, quat=_camera_quat(right, np.cross(backward, right)), fovy=55
    )


def _camera_quat(right: np.ndarray, up: np.ndarray) -> np.ndarray:
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.stack([right, up, np.cross(right, up)], 1).ravel())
    return quat


def layout(task: Task, state: "InitialState") -> Layout:
    """The layout of an initial state."""
    random = np.random.default_rng([state.seed, state.index, zlib.crc32(task.name.encode())])
    near = task.verb != "walk"
    low, high = ((-0.03, -0.03, -0.08), (0.02, 0.03, 0.08)) if near else _FAR_START
    robot = tuple(random.uniform(low, high).tolist())
    others = [name for name in OBJECTS if name != task.object]
    random.shuffle(others)
    num_others = {"walk": 3, "place": 1}.get(task.verb, 2)
    names = [*([task.object] if task.object else []), *others[:num_others]]
    plates = []
    if task.plate:
        rest = [color for color in COLORS if color not in (task.plate, task.color)]
        plates = [task.plate, str(random.choice(rest))]
    places = None
    while places is None:
        places = _places(task, random, names, plates)
    turns = random.uniform(-0.3, 0.3, len(names)).tolist()
    objects = {name: (x, y, turn) for name, (x, y), turn in zip(names, places, turns, strict=False)}
    return Layout(robot, objects, dict(zip(plates, places[len(names) :], strict=True)))


def _places(
    task: Task, random: np.random.Generator, names: list[str], plates: list[str]
) -> list[tuple[float, float]] | None:
    """One try to put objects and plates on the table, x and y; None if two are too close."""
    side = _side(task) or int(random.choice([-1, 1]))
    across = (0.02, 0.20) if task.direction in ("left", "right") else (0.09, 0.26)
    deep = (0.34, 0.37) if task.direction == "forward" else (0.29, 0.36)
    places: list[tuple[float, float]] = []
    for number in range(len(names) + len(plates)):
        is_named = (number == 0 and task.object) or (plates and number == len(names))
        if is_named:
            place = random.uniform(*deep), side * random.uniform(*across)
        else:
            place = random.uniform(0.29, 0.42), random.uniform(-0.36, 0.36)
        gap = _PUSH_GAP if task.verb == "push" else _PLATE_GAP if plates else _GAP
        if any(math.dist(place, other) < gap for other in places):
            return None
        places.append(place)
    return places


def _side(task: Task) -> int:
    """On which side of the table the object is, 1 for left: where the hand is that must do it."""
    if task.verb == "push":  # the hand comes from the other side
        return {"left": -1, "right": 1}.get(task.direction, 0)
    return {"left": 1, "right": -1}.get(task.hand, 0)


class World:
    """The compiled scene, shared by all episodes of a process, and where things are in it."""

    plate_height = 2 * _PLATE_HALF

    def __init__(self) -> None:
        self.spec = spec()
        self.model = self.spec.compile()
        model = self.model
        self.joints = body.qpos_addresses(model, JOINTS)
        self.dofs = body.qvel_addresses(model, JOINTS)
        self.body = body.actuator_ids(model, body.JOINTS)
        self.hands = body.actuator_ids(model, HAND_JOINTS)
        self._motors = body.actuator_ids(model, JOINTS)
        self._arms = body.actuator_ids(model, ARM_JOINTS)
        self._objects = {name: model.joint(name) for name in OBJECTS}
        self._plates = {c: int(model.body(f"{c}_plate").mocapid[0]) for c in COLORS}
        self._geoms = {name: model.geom(name).id for name in OBJECTS}
        names = [model.body(number).name for number in model.geom_bodyid]
        self._hands = {
            side: {
                geom
                for geom, name in enumerate(names)
                if name == f"{side}_wrist_yaw_link" or name.startswith(f"{side}_hand_")
            }
            for side in SIDES
        }

        self.resting = self._resting()
        """The command that the robot is under when an episode begins, float64 [36]: it stands, its
        arms are held in `READY`, its hands are relaxed."""

    def _resting(self) -> np.ndarray:
        """The motors of the arms are springs, so their targets are set against gravity."""
        data, values = mujoco.MjData(self.model), dict.fromkeys(NAMES, 0.0)
        for side, angles in READY.items():
            arm = kinematics.Arm(self.model, side)
            values |= zip(arm.joints, arm.targets(data, np.array(angles)), strict=True)
        values |= {"height": START_HEIGHT} | _relaxed()
        return np.array([values[name] for name in NAMES])

    def begin(self, data: mujoco.MjData, where: Layout) -> None:
        """Put the robot, upright and ready, and everything else where they begin."""
        mujoco.mj_resetData(self.model, data)
        x, y, heading = where.robot
        data.qpos[:7] = [x, y, START_HEIGHT, *_about_z(heading)]
        pose = dict(zip(JOINTS, body.default_pose(JOINTS), strict=True))
        stand = G1.standing.pose(np.array([START_HEIGHT]), np.zeros((1, 3)))[0]
        pose |= dict(zip(body.DRIVEN, stand, strict=True))
        pose |= dict(zip(ARM_JOINTS, [*READY["left"], *READY["right"]], strict=True))
        pose |= _relaxed()
        angles = np.array([pose[joint] for joint in JOINTS])
        data.qpos[self.joints] = data.ctrl[self._motors] = angles
        data.ctrl[self._arms] = self.resting[ARMS]
        for name, (x, y, turn) in where.objects.items():
            height = TABLE_TOP + rest_height(name.partition("_")[2])
            data.joint(name).qpos[:] = [x, y, height, *_about_z(turn)]
        for color, (x, y) in where.plates.items():
            data.mocap_pos[self._plates[color]] = [x, y, TABLE_TOP + _PLATE_HALF]
        self.park(data, where)
        mujoco.mj_forward(self.model, data)

    def park(self, data: mujoco.MjData, where: Layout) -> None:
        """Put the objects that are not used back to where they are out of sight."""
        for number, (name, joint) in enumerate(self._objects.items()):
            if name not in where.objects:
                start, speed = joint.qposadr[0], joint.dofadr[0]
                place = np.add(_PARKED, (0.0, 0.2 * number, 0.0))
                data.qpos[start : start + 7] = [*place, 1.0, 0.0, 0.0, 0.0]
                data.qvel[speed : speed + 6] = 0.0

    def place(self, data: mujoco.MjData, name: str) -> np.ndarray:
        """Where the middle of an object is, [3], m."""
        start = self._objects[name].qposadr[0]
        return data.qpos[start : start + 3].copy()

    def turn(self, data: mujoco.MjData, name: str) -> float:
        """The angle of an object about z, rad."""
        start = self._objects[name].qposadr[0]
        return _heading(data.qpos[start + 3 : start + 7])

    def speed(self, data: mujoco.MjData, name: str) -> float:
        """How fast an object moves, m/s."""
        start = self._objects[name].dofadr[0]
        return float(np.linalg.norm(data.qvel[start : start + 3]))

    def seen_places(self, data: mujoco.MjData, where: Layout) -> np.ndarray:
        """Where objects and then plates are in the robot's heading frame, [48], m; 0 for those that
        are not there."""
        rows = [self.place(data, name) if name in where.objects else None for name in OBJECTS]
        rows += [
            data.mocap_pos[self._plates[color]] if color in where.plates else None
            for color in COLORS
        ]
        angle = self.heading(data)
        cos, sin = math.cos(angle), math.sin(angle)
        into = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
        below = np.array([*data.qpos[:2], 0.0])
        return np.concatenate(
            [np.zeros(3) if row is None else into @ (row - below) for row in rows]
        )

    def above_table(self, data: mujoco.MjData, name: str) -> float:
        """How much higher an object is than lying on the table, m."""
        height = TABLE_TOP + rest_height(name.partition("_")[2])
        return float(self.place(data, name)[2] - height)

    def heading(self, data: mujoco.MjData) -> float:
        """The heading of the robot, rad."""
        return _heading(data.qpos[3:7])

    def touches(self, data: mujoco.MjData, side: str, name: str) -> bool:
        """Whether a hand touches an object, as of the last `mj_forward`."""
        thing, hand = self._geoms[name], self._hands[side]
        pairs = data.contact.geom[data.contact.dist < 0]
        return any(
            (a == thing and b in hand) or (b == thing and a in hand) for a, b in pairs.tolist()
        )


def _relaxed() -> dict[str, float]:
    return hands.pose("left", hands.RELAXED) | hands.pose("right", hands.RELAXED)


def gravity(data: mujoco.MjData) -> np.ndarray:
    """The direction of gravity in the pelvis' frame, [3]: (0, 0, -1) upright."""
    w, x, y, z = data.qpos[3:7]
    return np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1])


def _heading(quat: np.ndarray) -> float:
    w, x, y, z = quat
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _about_z(angle: float) -> list[float]:
    return [math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)]
