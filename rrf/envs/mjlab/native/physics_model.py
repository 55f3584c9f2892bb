"""The model that is stepped: mjlab's scene without its visuals, and with sensors for what terms
read.

`mujoco.rollout` returns only the state and the sensor data of every step. So every derived quantity
that a term may read (poses, velocities, actuator forces) is measured by a sensor. These sensors are
added after mjlab's own, so mjlab's sensors keep their addresses.

Without visual meshes, materials and textures a model is small (Go1: 0.05 MB instead of 37 MB, G1:
0.09 instead of 71, Go1 on rough terrain: 1.4). So every environment can have its own model if its
parameters are randomised. The ids of bodies, joints, geoms, sites, actuators and sensors are those
of mjlab's model.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import dataclasses

import mujoco
import numpy as np

_XBODY = mujoco.mjtObj.mjOBJ_XBODY
_BODY = mujoco.mjtObj.mjOBJ_BODY
_GEOM = mujoco.mjtObj.mjOBJ_GEOM
_SITE = mujoco.mjtObj.mjOBJ_SITE
_JOINT = mujoco.mjtObj.mjOBJ_JOINT
_ACTUATOR = mujoco.mjtObj.mjOBJ_ACTUATOR
_TENDON = mujoco.mjtObj.mjOBJ_TENDON
_SENSOR = mujoco.mjtSensor
# Sensors of the acceleration stage that need no solver.
_NO_SOLVER = (_SENSOR.mjSENS_ACTUATORFRC, _SENSOR.mjSENS_JOINTACTFRC)
_SEE_LOOKS = (
    *(_SENSOR.mjSENS_RANGEFINDER, _SENSOR.mjSENS_TACTILE),
    *(_SENSOR.mjSENS_GEOMDIST, _SENSOR.mjSENS_GEOMNORMAL, _SENSOR.mjSENS_GEOMFROMTO),
)  # they also see geoms that cannot touch anything
_LIMITS = (
    *(_SENSOR.mjSENS_JOINTLIMITPOS, _SENSOR.mjSENS_JOINTLIMITVEL),
    *(_SENSOR.mjSENS_TENDONLIMITPOS, _SENSOR.mjSENS_TENDONLIMITVEL),
)  # they read the constraints, although their stage is earlier
_SCALAR_JOINTS = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_AUTORESET = int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
_ISLAND = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
_WARP_TOLERANCE = 1e-6  # mujoco_warp raises the solver's tolerance to this, and so do we


@dataclasses.dataclass(frozen=True)
class PhysicsModel:
    """The model to step, and the layout of its sensor data.

    Columns [0, num_task_columns) of the sensor data are mjlab's. The block "xpos" is the columns
    `blocks["xpos"]`, to be read as [N, number of objects, width of one object].
    """

    model: mujoco.MjModel
    num_task_columns: int
    blocks: dict[str, tuple[slice, int]]  # name -> (columns, width of one object)
    force_dofs: np.ndarray  # dofs whose actuator force the block "qfrc_actuator" holds
    cheap_columns: np.ndarray  # columns that need neither contacts nor accelerations
    contact_columns: np.ndarray  # columns of contact sensors
    cheap_sensors: np.ndarray  # bool, which sensors have cheap columns
    contact_sensors: np.ndarray  # bool
    acceleration_sensors: frozenset[str]  # besides contacts: accelerometers, forces, limits, ...


def build_physics_model(slim: mujoco.MjSpec, full: mujoco.MjModel, configure) -> PhysicsModel:
    """Build the model to step.

    Args:
        slim: A copy of mjlab's scene, made before the scene was compiled; it is changed here.
        full: The compiled scene, with its options set.
        configure: Sets the options of a compiled model (mjlab's `MujocoCfg.apply`).
    """
    _remove_looks(slim, full)
    names = _name_everything(slim)
    blocks = _add_sensors(slim, full, names)
    model = slim.compile()
    configure(model)
    # A diverged state must stay visible and not be replaced by the initial one. A robot on the
    # ground is one island of constraints, so the search for islands takes time and finds nothing.
    model.opt.disableflags |= _AUTORESET | _ISLAND
    model.opt.tolerance = max(model.opt.tolerance, _WARP_TOLERANCE)
    for kind, known in names.items():
        assert [getattr(model, kind)(name).id for name in known] == list(range(len(known))), kind
    _check_same_physics(model, full)
    return _describe(model, full, blocks)


def _remove_looks(spec: mujoco.MjSpec, full: mujoco.MjModel) -> None:
    if any(sensor.type in _SEE_LOOKS for sensor in spec.sensors):
        return
    touched = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    touched |= {sensor.objname for sensor in spec.sensors if sensor.objtype == _GEOM}
    touched |= {sensor.refname for sensor in spec.sensors if sensor.reftype == _GEOM}
    used = set()
    for index, body in enumerate(spec.bodies):
        for geom in body.geoms:
            geom.material = ""
            is_mesh = geom.type == mujoco.mjtGeom.mjGEOM_MESH
            is_look = geom.contype == 0 and geom.conaffinity == 0 and geom.name not in touched
            if is_mesh and is_look:
                geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
                geom.size = [0.01, 0, 0]
                geom.mass = 0
                geom.meshname = ""
                _fix_inertia(body, full, index)
            used.add(geom.meshname)
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)
    for asset in [*spec.materials, *spec.textures]:
        spec.delete(asset)


def _fix_inertia(body: mujoco.MjsBody, full: mujoco.MjModel, index: int) -> None:
    """Set the inertia of a body that derives it from its geoms, because the visuals may have had
    mass.
    """
    if body.explicitinertial or full.body_mass[index] == 0:
        return
    body.explicitinertial = True
    body.mass, body.inertia = full.body_mass[index], full.body_inertia[index]
    body.ipos, body.iquat = full.body_ipos[index], full.body_iquat[index]


def _name_everything(spec: mujoco.MjSpec) -> dict[str, list[str]]:
    """The names of the objects that sensors are attached to, in order of their ids.

    Objects without a name get one.
    """
    kinds = {
        "body": spec.bodies,
        "site": spec.sites,
        "joint": spec.joints,
        "actuator": spec.actuators,
        "tendon": spec.tendons,
    }
    names: dict[str, list[str]] = {}
    for kind, objects in kinds.items():
        for index, element in enumerate(objects):
            element.name = element.name or f"rrf_{kind}_{index}"
        names[kind] = [element.name for element in objects]
    return names


def _add_sensors(
    spec: mujoco.MjSpec, full: mujoco.MjModel, names: dict[str, list[str]]
) -> list[tuple[str, int, int]]:
    """Returns (block, number of objects, width of one) in the order of the added columns."""
    scalar_joints = [j for j in range(full.njnt) if full.jnt_type[j] in _SCALAR_JOINTS]
    wanted = [
        ("xpos", _SENSOR.mjSENS_FRAMEPOS, _XBODY, names["body"], 3),
        ("xquat", _SENSOR.mjSENS_FRAMEQUAT, _XBODY, names["body"], 4),
        ("linvel", _SENSOR.mjSENS_FRAMELINVEL, _XBODY, names["body"], 3),
        ("angvel", _SENSOR.mjSENS_FRAMEANGVEL, _XBODY, names["body"], 3),
        ("subtree_com", _SENSOR.mjSENS_SUBTREECOM, _BODY, names["body"], 3),
        ("site_xpos", _SENSOR.mjSENS_FRAMEPOS, _SITE, names["site"], 3),
        ("site_xquat", _SENSOR.mjSENS_FRAMEQUAT, _SITE, names["site"], 4),
        (
            "actuator_force",
            _SENSOR.mjSENS_ACTUATORFRC,
            _ACTUATOR,
            names["actuator"],
            1,
        ),
        (
            "qfrc_actuator",
            _SENSOR.mjSENS_JOINTACTFRC,
            _JOINT,
            [names["joint"][j] for j in scalar_joints],
            1,
        ),
        (
            "ten_length",
            _SENSOR.mjSENS_TENDONPOS,
            _TENDON,
            names["tendon"],
            1,
        ),
        (
            "ten_velocity",
            _SENSOR.mjSENS_TENDONVEL,
            _TENDON,
            names["tendon"],
            1,
        ),
    ]
    for block, kind, objtype, objects, _ in wanted:
        for index, name in enumerate(objects):
            spec.add_sensor(name=f"rrf/{block}/{index}", type=kind, objtype=objtype, objname=name)
    return [(block, len(objects), width) for block, _, _, objects, width in wanted]


def _describe(
    model: mujoco.MjModel, full: mujoco.MjModel, blocks: list[tuple[str, int, int]]
) -> PhysicsModel:
    columns, start = {}, full.nsensordata
    for block, count, width in blocks:
        columns[block] = (slice(start, start + count * width), width)
        start += count * width
    assert start == model.nsensordata, (start, model.nsensordata)

    cheap = np.ones(model.nsensordata, dtype=bool)
    contact = np.zeros(model.nsensordata, dtype=bool)
    others = set()
    for i in range(full.nsensor):
        of_sensor = slice(full.sensor_adr[i], full.sensor_adr[i] + full.sensor_dim[i])
        kind, stage = full.sensor_type[i], full.sensor_needstage[i]
        if kind == _SENSOR.mjSENS_CONTACT:
            contact[of_sensor], cheap[of_sensor] = True, False
        elif kind in _LIMITS or (stage == mujoco.mjtStage.mjSTAGE_ACC and kind not in _NO_SOLVER):
            cheap[of_sensor] = False
            others.add(full.sensor(i).name)
    scalar = np.isin(full.jnt_type, [int(kind) for kind in _SCALAR_JOINTS])
    return PhysicsModel(
        model=model,
        num_task_columns=full.nsensordata,
        blocks=columns,
        force_dofs=full.jnt_dofadr[scalar].astype(np.int64),
        cheap_columns=np.flatnonzero(cheap),
        contact_columns=np.flatnonzero(contact),
        cheap_sensors=cheap[model.sensor_adr],
        contact_sensors=contact[model.sensor_adr],
        acceleration_sensors=frozenset(others),
    )


def _check_same_physics(model: mujoco.MjModel, full: mujoco.MjModel) -> None:
    """Compare the sizes of the two models, and copy masses and inertias from `full`.

    In some models, masses and inertias come from geoms, and the visuals had mass.
    """
    for field in ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "neq"):
        assert getattr(model, field) == getattr(full, field), field
    for field in (
        "body_mass", "body_inertia", "body_ipos", "body_iquat", "body_sameframe",
        "body_subtreemass", "body_invweight0", "dof_invweight0", "dof_M0", "dof_length",
    ):  # fmt: skip
        getattr(model, field)[...] = getattr(full, field)
    model.stat.meaninertia = full.stat.meaninertia
    model.stat.meanmass = full.stat.meanmass
