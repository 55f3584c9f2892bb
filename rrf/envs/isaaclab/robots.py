"""Robots as USD files, from URDF: what Isaac Lab's own assets are replaced with where they are not
on the package index. Runs where `simulator.py` runs.

A link is a rigid body below the robot's root, in its place of the zero pose. Links behind fixed
joints become a part of what they are fixed to, except `kept` ones, which Isaac Lab's tasks name.
Only collision shapes are written; they are what a camera sees. Of a mesh it is the convex hull, or
for robots on legs, which touch little but the ground, the box around it, and a ball at a foot.
Armatures are left to Isaac Lab's actuators, and so are most robots' drives.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportPossiblyUnboundVariable=false

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from pxr import Gf, Sdf, Usd, UsdGeom, UsdPhysics

_MOVING = {"revolute": "angular", "continuous": "angular", "prismatic": "linear"}
_PACKAGE = "package://"


@dataclasses.dataclass
class _Body:
    """A link with what is fixed to it: mass in kg, centre of mass in m, inertia about it."""

    name: str
    pose: np.ndarray  # 4 x 4, in the robot's frame
    mass: float = 0.0
    com: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((3, 3)))
    shapes: list = dataclasses.field(default_factory=list)  # (place 4 x 4, element of geometry)

    def add(self, link, place):
        """Add a link whose frame is at `place` in this body's frame."""
        for collision in link.findall("collision"):
            shape = place @ _pose(collision.find("origin"))
            self.shapes.append((shape, collision.find("geometry")[0]))
        if (inertial := link.find("inertial")) is None:
            return
        at = place @ _pose(inertial.find("origin"))
        mass = float(inertial.find("mass").get("value"))
        values = {key: float(text) for key, text in inertial.find("inertia").items()}
        own = np.array([[values["i" + "".join(sorted(a + b))] for b in "xyz"] for a in "xyz"])
        total = self.mass + mass
        if total == 0.0:
            return
        com = (self.mass * self.com + mass * at[:3, 3]) / total
        turned = at[:3, :3] @ own @ at[:3, :3].T
        self.inertia = _shifted(self.inertia, self.mass, self.com - com) + _shifted(
            turned, mass, at[:3, 3] - com
        )
        self.mass, self.com = total, com


def write(urdf, target, packages, first, kept="", is_fixed=False, feet=None, drives=None):
    """Write a robot.

    Args:
        urdf: The URDF file.
        target: The USD file.
        packages: The folder that `package://` stands for.
        first: The link to begin with; what is above it is left out.
        kept: A regular expression of the links that stay bodies although they are fixed.
        is_fixed: Whether the robot is fixed to the world.
        feet: For robots on legs, a regular expression of the links that are feet.
        drives: Stiffness and damping of the drives, of angular ones in Nm/rad and Nm s/rad and of
            linear ones in N/m and N s/m; None where Isaac Lab's config sets them.
    """
    robot = ET.parse(urdf).getroot()
    links = {link.get("name"): link for link in robot.findall("link")}
    joints = {joint.find("child").get("link"): joint for joint in robot.findall("joint")}
    bodies, moving = {}, []
    of_parent = {}
    for child, joint in joints.items():
        of_parent.setdefault(joint.find("parent").get("link"), []).append((child, joint))
    todo = [(first, None, np.eye(4), np.eye(4))]
    while todo:
        name, body, place, pose = todo.pop(0)
        if body is None:
            body = bodies[name] = _Body(name, pose)
            place = np.eye(4)
        body.add(links[name], place)
        for child, joint in of_parent.get(name, []):
            origin = _pose(joint.find("origin"))
            merges = joint.get("type") == "fixed" and not re.fullmatch(kept, child)
            if not merges:
                moving.append((joint, body.name, child, place @ origin))
            todo.append((child, body if merges else None, place @ origin, pose @ origin))
    stage = _Stage(Path(target), robot.get("name"), Path(packages), feet, drives)
    stage.write(bodies, moving, is_fixed)


class _Stage:
    def __init__(self, target, name, packages, feet, drives):
        target.parent.mkdir(parents=True, exist_ok=True)
        self._stage = Usd.Stage.CreateInMemory()
        self._target, self._packages, self._feet = target, packages, feet
        self._drives = drives or dict.fromkeys(_MOVING.values(), (0.0, 0.0))
        UsdGeom.SetStageUpAxis(self._stage, UsdGeom.Tokens.z)
        UsdGeom.SetStageMetersPerUnit(self._stage, 1.0)
        UsdPhysics.SetStageKilogramsPerUnit(self._stage, 1.0)
        self._root = f"/{re.sub(r'[^A-Za-z0-9_]', '_', name)}"

    def write(self, bodies, moving, is_fixed):
        top = UsdGeom.Xform.Define(self._stage, self._root).GetPrim()
        self._stage.SetDefaultPrim(top)
        UsdPhysics.ArticulationRootAPI.Apply(top)
        for body in bodies.values():
            self._body(body)
        UsdGeom.Scope.Define(self._stage, f"{self._root}/joints")
        if is_fixed:
            fixed = UsdPhysics.FixedJoint.Define(self._stage, f"{self._root}/joints/root_joint")
            fixed.CreateBody1Rel().SetTargets([f"{self._root}/{next(iter(bodies))}"])
        for joint, parent, child, place in moving:
            self._joint(joint, parent, child, place)
        self._stage.GetRootLayer().Export(str(self._target))

    def _body(self, body):
        path = f"{self._root}/{body.name}"
        xform = UsdGeom.Xform.Define(self._stage, path)
        _place(xform, body.pose)
        prim = xform.GetPrim()
        UsdPhysics.RigidBodyAPI.Apply(prim)
        mass = UsdPhysics.MassAPI.Apply(prim)
        moments, axes = np.linalg.eigh(body.inertia)
        if np.linalg.det(axes) < 0:
            axes[:, 0] *= -1
        mass.CreateMassAttr(body.mass)
        mass.CreateCenterOfMassAttr(Gf.Vec3f(*map(float, body.com)))
        mass.CreateDiagonalInertiaAttr(Gf.Vec3f(*map(float, moments)))
        mass.CreatePrincipalAxesAttr(Gf.Quatf(_quaternion(axes)))
        for number, (place, geometry) in enumerate(body.shapes):
            shape = self._shape(f"{path}/collision_{number}", geometry, place)
            UsdPhysics.CollisionAPI.Apply(shape.GetPrim())

    def _shape(self, path, geometry, place):
        size = np.ones(3)
        if geometry.tag == "mesh":
            return self._of_mesh(path, geometry, place)
        if geometry.tag == "box":
            size = _numbers(geometry.get("size"))
            shape = self._box(path)
        elif geometry.tag == "sphere":
            shape = UsdGeom.Sphere.Define(self._stage, path)
            shape.CreateRadiusAttr(float(geometry.get("radius")))
        else:
            shape = UsdGeom.Cylinder.Define(self._stage, path)
            shape.CreateRadiusAttr(float(geometry.get("radius")))
            shape.CreateHeightAttr(float(geometry.get("length")))
            shape.CreateAxisAttr("Z")
        _place(shape, place, size)
        return shape

    def _box(self, path):
        shape = UsdGeom.Cube.Define(self._stage, path)
        shape.CreateSizeAttr(1.0)
        return shape

    def _of_mesh(self, path, geometry, place):
        import trimesh

        file = self._packages / geometry.get("filename").removeprefix(_PACKAGE)
        hull = trimesh.load(file, force="mesh").convex_hull
        points = hull.vertices * _numbers(geometry.get("scale", "1 1 1"))
        if self._feet is None:
            shape = UsdGeom.Mesh.Define(self._stage, path)
            shape.CreatePointsAttr([Gf.Vec3f(*map(float, point)) for point in points])
            shape.CreateFaceVertexCountsAttr([3] * len(hull.faces))
            shape.CreateFaceVertexIndicesAttr(hull.faces.reshape(-1).tolist())
            shape.CreateSubdivisionSchemeAttr("none")
            mesh = UsdPhysics.MeshCollisionAPI.Apply(shape.GetPrim())
            mesh.CreateApproximationAttr("convexHull")
            _place(shape, place)
            return shape
        low, high = points.min(0), points.max(0)
        middle = np.eye(4)
        middle[:3, 3] = (low + high) / 2
        if not re.fullmatch(self._feet, path.split("/")[-2]):
            shape = self._box(path)
            _place(shape, place @ middle, high - low)
            return shape
        radius = np.median(high - low) / 2
        middle[2, 3] = low[2] + radius  # it touches the ground where the foot does
        shape = UsdGeom.Sphere.Define(self._stage, path)
        shape.CreateRadiusAttr(float(radius))
        _place(shape, place @ middle)
        return shape

    def _joint(self, joint, parent, child, place):
        path = f"{self._root}/joints/{joint.get('name')}"
        kind, turn = joint.get("type"), np.eye(3)
        if kind == "fixed":
            made = UsdPhysics.FixedJoint.Define(self._stage, path)
        else:
            angular = _MOVING[kind] == "angular"
            schema = UsdPhysics.RevoluteJoint if angular else UsdPhysics.PrismaticJoint
            made = schema.Define(self._stage, path)
            made.CreateAxisAttr("X")
            turn = _turning_x_to(_numbers(joint.find("axis").get("xyz")))
            limit, unit = joint.find("limit"), 180 / np.pi if angular else 1.0
            if kind != "continuous":
                made.CreateLowerLimitAttr(float(limit.get("lower")) * unit)
                made.CreateUpperLimitAttr(float(limit.get("upper")) * unit)
            drive = UsdPhysics.DriveAPI.Apply(made.GetPrim(), _MOVING[kind])
            drive.CreateTypeAttr("force")
            drive.CreateMaxForceAttr(float(limit.get("effort")))
            stiffness, damping = self._drives[_MOVING[kind]]
            drive.CreateStiffnessAttr(stiffness / unit)  # per degree, where limits are in degrees
            drive.CreateDampingAttr(damping / unit)
        made.CreateBody0Rel().SetTargets([Sdf.Path(f"{self._root}/{parent}")])
        made.CreateBody1Rel().SetTargets([Sdf.Path(f"{self._root}/{child}")])
        made.CreateLocalPos0Attr(Gf.Vec3f(*map(float, place[:3, 3])))
        made.CreateLocalRot0Attr(Gf.Quatf(_quaternion(place[:3, :3] @ turn)))
        made.CreateLocalPos1Attr(Gf.Vec3f(0.0))
        made.CreateLocalRot1Attr(Gf.Quatf(_quaternion(turn)))


def _numbers(text):
    return np.array([float(word) for word in text.split()])


def _pose(origin):
    """The 4 x 4 matrix of an `origin` element; the identity without one."""
    pose = np.eye(4)
    if origin is not None:
        roll, pitch, yaw = _numbers(origin.get("rpy", "0 0 0"))
        pose[:3, :3] = _about(2, yaw) @ _about(1, pitch) @ _about(0, roll)
        pose[:3, 3] = _numbers(origin.get("xyz", "0 0 0"))
    return pose


def _about(axis, angle):
    cos, sin, turn = np.cos(angle), np.sin(angle), np.eye(3)
    first, second = (axis + 1) % 3, (axis + 2) % 3
    turn[first, first] = turn[second, second] = cos
    turn[first, second], turn[second, first] = -sin, sin
    return turn


def _turning_x_to(axis):
    """A rotation that takes the x axis to `axis`."""
    x = axis / np.linalg.norm(axis)
    other = np.eye(3)[np.argmin(np.abs(x))]
    z = np.cross(x, other) / np.linalg.norm(np.cross(x, other))
    return np.stack([x, np.cross(z, x), z], axis=1)


def _shifted(inertia, mass, offset):
    """The inertia of a mass about a point that is `offset` away from its centre."""
    return inertia + mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))


def _quaternion(turn):
    matrix = Gf.Matrix3d(*map(float, turn.T.reshape(-1)))
    return matrix.ExtractRotation().GetQuat()


def _place(shape, pose, size=None):
    shape.AddTranslateOp().Set(Gf.Vec3d(*map(float, pose[:3, 3])))
    shape.AddOrientOp().Set(Gf.Quatf(_quaternion(pose[:3, :3])))
    shape.AddScaleOp().Set(Gf.Vec3f(*map(float, np.ones(3) if size is None else size)))
