"""The physics of the whole-body task: N robots on flat ground, each with a model of its own.

Legend: N robots, K of them chosen, S physics steps of an action, X width of a physics state, Y of
what sensors measure.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import copy
import typing

import mujoco
import mujoco.rollout
import numpy as np

from rrf.envs.humanoid import body
from rrf.envs.humanoid.balancer import STEP_S
from rrf.envs.humanoid.command import SIDES
from rrf.envs.humanoid.robots import G1, Robot

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS
_MAX_STATE = 1e6
RANDOM_FIELDS = ("geom_friction", "body_mass", "actuator_gainprm", "actuator_biasprm")
"""Fields of a model that `randomise` draws."""


def model_spec(is_fast: bool, robot: Robot = G1, *, has_links: bool = False) -> mujoco.MjSpec:
    """The robot that the legs' policy learns with, and what rewards read of it: with `has_links`,
    also the places of the pelvis and of the links that its joints turn, after everything else.
    """
    spec = robot.spec()
    middle, half = robot.touch_box
    sensor, site = mujoco.mjtSensor, mujoco.mjtObj.mjOBJ_SITE
    for side, foot, name in zip(SIDES, body.FEET, robot.feet, strict=True):
        spec.body(name).add_site(
            name=f"{side}_sole", type=mujoco.mjtGeom.mjGEOM_BOX, pos=middle, size=half
        )
        for kind in (sensor.mjSENS_FRAMEPOS, sensor.mjSENS_FRAMELINVEL, sensor.mjSENS_FRAMEXAXIS):
            spec.add_sensor(type=kind, objtype=site, objname=foot)
        spec.add_sensor(type=sensor.mjSENS_TOUCH, objtype=site, objname=f"{side}_sole")
    torso = mujoco.mjtObj.mjOBJ_XBODY
    spec.add_sensor(type=sensor.mjSENS_FRAMEQUAT, objtype=torso, objname=robot.torso)
    if has_links:
        links = [spec.joint(name).parent for name in robot.observed]
        for link in (spec.bodies[1], *links):
            spec.add_sensor(type=sensor.mjSENS_FRAMEPOS, objtype=torso, objname=link.name)
    if is_fast:
        spec.option.timestep = 0.01
        spec.option.iterations, spec.option.ls_iterations = 5, 8
    return spec


class WholeBodyPhysics:
    """The states of N robots, and how they advance.

    Args:
        spec: See `model_spec`.
        num_robots: N.
        num_threads: Threads of the simulation.
        robot: Whose `spec` is.
    """

    def __init__(self, spec: mujoco.MjSpec, num_robots: int, num_threads: int, robot: Robot = G1):
        self.model = model = spec.compile()
        self.num_substeps = round(STEP_S / model.opt.timestep)
        self.models = [copy.copy(model) for _ in range(num_robots)]
        self._actuators = body.actuator_ids(model, robot.observed)
        self._soles = [g for g in range(model.ngeom) if "_sole" in model.geom(g).name]
        self._torso = model.body(robot.torso).id
        self._hands = [model.body(name).id for name in robot.hands]
        self._rollout = mujoco.rollout.Rollout(nthread=num_threads)
        self._datas = [mujoco.MjData(model) for _ in range(max(num_threads, 1))]
        size = mujoco.mj_stateSize(model, _STATE)
        self.state_nx = np.zeros((num_robots, size))
        self.warmstart_nv = np.zeros((num_robots, model.nv))
        self.latency_n = np.zeros(num_robots, np.int64)
        """Physics steps until the targets of an action reach the motors."""
        self._states_nsx = np.zeros((num_robots, self.num_substeps, size))
        self._sensors_nsy = np.zeros((num_robots, self.num_substeps, model.nsensordata))
        self._velocities = slice(1 + model.nq, 1 + model.nq + model.nv)

    @property
    def qpos(self) -> np.ndarray:
        """Positions, a view [N, Q]."""
        return self.state_nx[:, 1 : 1 + self.model.nq]

    @property
    def qvel(self) -> np.ndarray:
        """Velocities, a view [N, V]."""
        return self.state_nx[:, self._velocities]

    # What `model_spec` measures, before the last physics step.

    @property
    def feet(self) -> np.ndarray:
        """Of each foot its place, velocity and x axis in the world's frame, and the force on its
        sole: [N, 2, 3 + 3 + 3 + 1], m, m/s and N."""
        return self._sensors_nsy[:, -1, :20].reshape(-1, 2, 10)

    @property
    def torso(self) -> np.ndarray:
        """The orientation of the torso, a quaternion [N, 4], w first."""
        return self._sensors_nsy[:, -1, 20:24]

    @property
    def links(self) -> np.ndarray:
        """Places of the pelvis and the links in the world's frame, [N, 1 + L, 3], m."""
        return self._sensors_nsy[:, -1, 24:].reshape(len(self.models), -1, 3)

    def step(self, old_n23: np.ndarray, new_n23: np.ndarray) -> np.ndarray:
        """Advance by one action.

        Args:
            old_n23: Targets of the joints `body.OBSERVED` until the action arrives, rad.
            new_n23: And from then on.

        Returns:
            bool [N], whose physics diverged; they stay as they were.
        """
        arrived = np.arange(self.num_substeps)[None, :, None] >= self.latency_n[:, None, None]
        given = np.where(arrived, new_n23[:, None], old_n23[:, None])
        controls = np.empty_like(given)
        controls[:, :, self._actuators] = given
        self._rollout.rollout(
            self.models,
            self._datas,
            self.state_nx,
            controls,
            control_spec=int(mujoco.mjtState.mjSTATE_CTRL),
            skip_checks=True,
            nstep=self.num_substeps,
            initial_warmstart=self.warmstart_nv,
            state=self._states_nsx,
            sensordata=self._sensors_nsy,
        )
        last, before = self._states_nsx[:, -1], self._states_nsx[:, -2]
        with np.errstate(invalid="ignore"):
            diverged = ~(np.abs(last[:, 1:]).max(1) < _MAX_STATE)
        self.warmstart_nv = last[:, self._velocities] - before[:, self._velocities]
        self.warmstart_nv /= self.model.opt.timestep
        self.warmstart_nv[diverged] = 0.0
        last[diverged] = self.state_nx[diverged]
        np.copyto(self.state_nx, last)
        return diverged

    def begin(self, robots: np.ndarray, qpos_kq: np.ndarray) -> None:
        """Put robots, at rest, into these positions."""
        self.state_nx[robots] = 0.0
        self.qpos[robots] = qpos_kq
        self.warmstart_nv[robots] = 0.0

    def randomise(self, robots: np.ndarray, level: float, rng: np.random.Generator) -> None:
        """Draw friction, masses, motors and latency, in ranges as wide as the level, 0 to 1."""
        num, base = len(robots), self.model
        friction = 0.8 + level * rng.uniform(-0.4, 0.5, num)
        torso = level * rng.uniform(-1.0, 3.0, num)  # kg
        payload = level * rng.uniform(0.0, 1.2, (num, 2)) * (rng.random((num, 2)) < 0.5)  # kg
        gains = 1.0 + level * rng.uniform(-0.1, 0.1, (num, base.nu))
        self.latency_n[robots] = rng.integers(0, round(level * self.num_substeps) + 1, num)
        for row, robot in enumerate(robots):
            model = self.models[robot]
            model.geom_friction[self._soles, 0] = friction[row]
            model.body_mass[self._torso] = base.body_mass[self._torso] + torso[row]
            model.body_mass[self._hands] = (
                base.body_mass[self._hands] + payload[row, : len(self._hands)]
            )
            model.actuator_gainprm[:, 0] = base.actuator_gainprm[:, 0] * gains[row]
            model.actuator_biasprm[:, 1] = base.actuator_biasprm[:, 1] * gains[row]

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all that determines how it continues."""
        arrays = {"state": self.state_nx, "warmstart": self.warmstart_nv, "latency": self.latency_n}
        for name in RANDOM_FIELDS:
            arrays[name] = np.stack([getattr(model, name) for model in self.models])
        return {name: values.copy() for name, values in arrays.items()}

    def load_state(self, arrays: typing.Mapping[str, np.ndarray]) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: For a state of another number of robots.
        """
        if arrays["state"].shape != self.state_nx.shape:
            raise ValueError(
                f"the state is of {len(arrays['state'])} environments, but there are "
                f"{len(self.state_nx)} here"
            )
        self.state_nx[...] = arrays["state"]
        self.warmstart_nv, self.latency_n = arrays["warmstart"].copy(), arrays["latency"].copy()
        for name in RANDOM_FIELDS:
            for model, values in zip(self.models, arrays[name], strict=True):
                getattr(model, name)[...] = values

    def close(self) -> None:
        """Free the threads. Calling it twice is allowed."""
        if self._rollout.rollout_ is not None:
            self._rollout.close()
