"""Steps N models on a persistent pool of threads: `mujoco.rollout` with everything preallocated.

One call advances every environment by all substeps of a control step. The constraint solver starts
from the accelerations of the last step. They are estimated as (v_t - v_{t-1}) / dt, because the
rollout does not return MuJoCo's own. What an environment does depends only on its state, controls
and model, not on the number of threads.

`measure` refreshes the sensor data without advancing: it makes one step and discards the resulting
state. Most sensors need neither contacts nor the solver, so a cheap measurement leaves both out.

Events set parameters of the model (masses, frictions, gains, ...) for each environment by writing
tensors [N, ...] (`NativeModel.expanded`). Before the next step, the changed values are written into
the models that are stepped. From then on every environment has its own model.

Legend: N environments, K of them chosen, S substeps, X width of a state, Y width of sensor data.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import contextlib
import copy
from collections.abc import Iterable, Iterator

import mujoco
import mujoco.rollout
import numpy as np
import torch
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields

from rrf.envs.mjlab.native.physics_model import PhysicsModel
from rrf.envs.mjlab.native.views import NativeModel

_STATE = mujoco.mjtState
_DISABLE = mujoco.mjtDisableBit
_KINEMATICS_ONLY = int(
    _DISABLE.mjDSBL_CONTACT
    | _DISABLE.mjDSBL_CONSTRAINT
    | _DISABLE.mjDSBL_EULERDAMP
    | _DISABLE.mjDSBL_AUTORESET
)
_EULER = int(mujoco.mjtIntegrator.mjINT_EULER)
_MIDPHASE = int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
_DERIVED_FIELDS = {  # what mjlab computes again at each level
    level: tuple(requires_model_fields(recompute=level)(lambda: None).model_fields)  # pyright: ignore
    for level in RecomputeLevel
}
_DERIVED = {name for names in _DERIVED_FIELDS.values() for name in names}
_SAME_FRAME = {
    "body_ipos": "body_sameframe",
    "body_iquat": "body_sameframe",
    "geom_pos": "geom_sameframe",
    "geom_quat": "geom_sameframe",
    "site_pos": "site_sameframe",
    "site_quat": "site_sameframe",
}  # the compiler's shortcuts for coinciding frames, which are no longer valid
_LOOKS = ("mat_", "tex_", "geom_matid")  # visuals, which the stepped model does not have
_IN_TREES = {"geom_pos", "geom_quat", "geom_size"}  # the boxes around geoms are compiled into trees
MAX_STATE = 1e8
"""A position or velocity beyond this has diverged."""


class Stepper:
    """N copies of a model, the buffers that the rollout reads and writes, and its threads."""

    def __init__(self, physics: PhysicsModel, num_envs: int, num_substeps: int, num_threads: int):
        model = physics.model
        self.physics = physics
        self.models = [model] * num_envs
        self._options = [model.opt]
        self._rollout = mujoco.rollout.Rollout(nthread=num_threads)
        self._datas = [mujoco.MjData(model) for _ in range(max(num_threads, 1))]
        size = mujoco.mj_stateSize(model, _STATE.mjSTATE_FULLPHYSICS)
        self.state_NX = np.zeros((num_envs, size))
        self.warmstart_NV = np.zeros((num_envs, model.nv))
        self.set_num_substeps(num_substeps)
        self._state_out_N1X = np.zeros((num_envs, 1, size))
        self._sensor_out_N1Y = np.zeros((num_envs, 1, model.nsensordata))
        self.qpos = slice(1, 1 + model.nq)
        self.qvel = slice(1 + model.nq, 1 + model.nq + model.nv)
        self.act = slice(1 + model.nq + model.nv, 1 + model.nq + model.nv + model.na)

    def set_num_substeps(self, num_substeps: int) -> None:
        """Set how many substeps `step` makes."""
        num_envs, size = self.state_NX.shape
        self.states_NSX = np.zeros((num_envs, num_substeps, size))
        self.sensors_NSY = np.zeros((num_envs, num_substeps, self.physics.model.nsensordata))

    def give_each_its_own_model(self) -> None:
        """Copy the model, so that `models[i]` can be changed without changing the others."""
        if len({id(model) for model in self.models}) < len(self.models):
            self.models = [copy.copy(self.physics.model) for _ in self.models]
            self._options = [model.opt for model in self.models]

    def step(self, controls: np.ndarray, control_spec: int) -> np.ndarray:
        """Advance all environments by S substeps, with controls [N, S, C] in the order of
        `control_spec`.

        `states_NSX` and `sensors_NSY` then hold the state after each substep and its sensor data.
        An environment that diverged keeps the state that it started from; ignore its row of
        `sensors_NSY`.

        Returns:
            bool [N], which environments diverged.
        """
        self._rollout.rollout(
            self.models,
            self._datas,
            self.state_NX,
            controls,
            control_spec=control_spec,
            skip_checks=True,
            nstep=self.states_NSX.shape[1],
            initial_warmstart=self.warmstart_NV,
            state=self.states_NSX,
            sensordata=self.sensors_NSY,
        )
        last = self.states_NSX[:, -1]
        moving = last[:, 1:]
        with np.errstate(invalid="ignore"):
            diverged = ~(np.abs(moving).max(axis=1, initial=0.0) < MAX_STATE)
        if diverged.any():
            self.states_NSX[diverged] = self.state_NX[diverged, None]
        before = self.states_NSX[:, -2] if self.states_NSX.shape[1] > 1 else self.state_NX
        np.subtract(last[:, self.qvel], before[:, self.qvel], out=self.warmstart_NV)
        self.warmstart_NV /= self.physics.model.opt.timestep
        np.copyto(self.state_NX, last)
        return diverged

    def measure(
        self, rows: np.ndarray, controls: np.ndarray, control_spec: int, *, cheap: bool
    ) -> np.ndarray:
        """Sensor data [K, Y] of the environments `rows` as they are now, with controls [K, 1, C].

        Args:
            cheap: Leave out contacts and constraints; only the columns `PhysicsModel.cheap_columns`
                are then meaningful.
        """
        everyone = len(rows) == len(self.models)
        models = self.models if everyone else [self.models[i] for i in rows]
        out = self._sensor_out_N1Y[: len(rows)]
        with self._kinematics_only() if cheap else contextlib.nullcontext():
            self._rollout.rollout(
                models,
                self._datas,
                self.state_NX if everyone else self.state_NX[rows],
                controls,
                control_spec=control_spec,
                skip_checks=True,
                nstep=1,
                initial_warmstart=self.warmstart_NV if everyone else self.warmstart_NV[rows],
                state=self._state_out_N1X[: len(rows)],
                sensordata=out,
            )
        return out[:, 0]

    @contextlib.contextmanager
    def _kinematics_only(self) -> Iterator[None]:
        first = self._options[0]
        flags, integrator = first.disableflags, first.integrator
        for option in self._options:
            option.disableflags = flags | _KINEMATICS_ONLY
            option.integrator = _EULER
        try:
            yield
        finally:
            for option in self._options:
                option.disableflags = flags
                option.integrator = integrator

    def close(self) -> None:
        if self._rollout.rollout_ is not None:
            self._rollout.close()


class RandomisedParameters:
    """Keeps the models of all environments up to date with what events write."""

    def __init__(self, view: NativeModel, stepper: Stepper):
        self._view, self._stepper = view, stepper
        self._pushed: dict[str, tuple[int, torch.Tensor]] = {}  # tensor's version and values

    def watch(self, fields: Iterable[str]) -> None:
        """Let events set these fields.

        Fields that MuJoCo derives from others are only read back, and visuals stay in the view.
        """
        for name in fields:
            self._view.expand(name)
            if name in _IN_TREES:
                self._stepper.physics.model.opt.disableflags |= _MIDPHASE
            if name not in _DERIVED and not name.startswith(_LOOKS):
                tensor = self._view.expanded[name]
                self._pushed[name] = (tensor._version, tensor.clone())

    @property
    def have_derived(self) -> bool:
        """Whether MuJoCo derives any of the fields from the ones that events set."""
        return any(name in _DERIVED for name in self._view.expanded)

    def push(self) -> list[int]:
        """Write the changed values into the models; returns the environments that changed."""
        changed: set[int] = set()
        for name, (version, last) in self._pushed.items():
            tensor = self._view.expanded[name]
            if tensor._version == version:
                continue
            rows = (tensor != last).flatten(1).any(1).nonzero().flatten().tolist()
            if rows:
                self._stepper.give_each_its_own_model()
            for i in rows:
                _set(self._stepper.models[i], name, tensor[i].numpy())
            self._pushed[name] = (tensor._version, tensor.clone())
            changed.update(rows)
        return sorted(changed)

    def recompute(self, rows: Iterable[int], level: RecomputeLevel) -> None:
        """Let MuJoCo recompute the fields that it derives, and read back those that belong to
        `level`.
        """
        for i in rows:
            model = self._stepper.models[i]
            mujoco.mj_setConst(model, mujoco.MjData(model))  # at the initial state
            for name in _DERIVED_FIELDS[level]:
                value = np.asarray(getattr(model, name))
                self._view.expanded[name][i] = torch.from_numpy(value)


def _set(model: mujoco.MjModel, name: str, values: np.ndarray) -> None:
    field = getattr(model, name)
    field[...] = values.reshape(field.shape)
    if name in _SAME_FRAME:
        getattr(model, _SAME_FRAME[name])[...] = int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)
