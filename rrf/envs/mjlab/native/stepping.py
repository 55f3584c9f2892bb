"""Steps N models on a persistent pool of threads (`rollouts.py`) with everything preallocated.

One call advances every environment by all substeps of a control step. The constraint solver starts
from the accelerations of the last step. They are estimated as (v_t - v_{t-1}) / dt, because the
rollout does not return MuJoCo's own. What an environment does depends only on its state, controls
and model, not on the number of threads.

`measure` refreshes the sensor data without advancing. Most sensors need neither contacts nor the
solver, so a cheap measurement leaves both out.

Events set parameters of the model (masses, frictions, gains, ...) for each environment by writing
tensors [N, ...] (`NativeModel.expanded`). Before the next step, the changed values are written into
the models that are stepped. From then on every environment has its own model.

Legend: N environments, K of them chosen, S substeps, X width of a state, Y width of sensor data.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import copy
from collections.abc import Iterable

import mujoco
import numpy as np
import torch
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields

from rrf.envs.mjlab.native import rollouts
from rrf.envs.mjlab.native.physics_model import PhysicsModel
from rrf.envs.mjlab.native.views import NativeModel

_STATE = mujoco.mjtState
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
        self._rollout = rollouts.of(physics, num_envs, num_threads)
        size = mujoco.mj_stateSize(model, _STATE.mjSTATE_FULLPHYSICS)
        self.state_NX = np.zeros((num_envs, size))
        self.warmstart_NV = np.zeros((num_envs, model.nv))
        self.set_num_substeps(num_substeps)
        self._measured_NY = np.zeros((num_envs, model.nsensordata))
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

    def models_changed(self, envs: Iterable[int]) -> None:
        """Say it after a change of the models of these environments."""
        self._rollout.models_changed(envs)

    def step(self, controls: np.ndarray, control_spec: int) -> np.ndarray:
        """Advance all environments by S substeps, with controls [N, C] in the order of
        `control_spec`.

        `states_NSX` and `sensors_NSY` then hold the state after each substep and its sensor data;
        before the last one, only those of contact sensors. An environment that diverged keeps the
        state that it started from; ignore its row of `sensors_NSY`.

        Returns:
            bool [N], which environments diverged.
        """
        self._rollout.step(
            self.models, self.state_NX, self.warmstart_NV, controls, control_spec,
            self.states_NSX, self.sensors_NSY,
        )  # fmt: skip
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
        """Sensor data [K, Y] of the environments `rows` as they are now, with controls [K, C].

        Args:
            cheap: Leave out contacts and constraints; only the columns `PhysicsModel.cheap_columns`
                are then meaningful.
        """
        out = self._measured_NY[: len(rows)]
        self._rollout.measure(
            self.models, rows, self.state_NX, self.warmstart_NV, controls, control_spec, out,
            cheap=cheap,
        )  # fmt: skip
        return out

    def close(self) -> None:
        """End the threads. Calling it twice is allowed."""
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
        self._stepper.models_changed(changed)
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
            self._stepper.models_changed([i])


def _set(model: mujoco.MjModel, name: str, values: np.ndarray) -> None:
    field = getattr(model, name)
    field[...] = values.reshape(field.shape)
    if name in _SAME_FRAME:
        getattr(model, _SAME_FRAME[name])[...] = int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)
