"""Threads that step and measure environments: `rrf.compiled.rollout`, or where it cannot be
compiled `mujoco.rollout` itself. Both give the same numbers.

Legend: see `rrf.compiled.rollout`.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import mujoco
import mujoco.rollout
import numpy as np

from rrf.compiled import rollout
from rrf.envs.mjlab.native.physics_model import PhysicsModel

_DISABLE = mujoco.mjtDisableBit
_KINEMATICS_ONLY = int(
    _DISABLE.mjDSBL_CONTACT
    | _DISABLE.mjDSBL_CONSTRAINT
    | _DISABLE.mjDSBL_EULERDAMP
    | _DISABLE.mjDSBL_AUTORESET
)
_EULER = int(mujoco.mjtIntegrator.mjINT_EULER)


def of(physics: PhysicsModel, num_envs: int, num_threads: int) -> "rollout.Rollout | MujocoRollout":
    """The faster of the two that there is."""
    if rollout.library() is None:
        return MujocoRollout(physics.model, num_threads)
    masks = physics.contact_sensors, physics.cheap_sensors
    return rollout.Rollout(physics.model, num_envs, num_threads, *masks)


class MujocoRollout:
    """`mujoco.rollout` with everything preallocated. See `rrf.compiled.rollout.Rollout`."""

    def __init__(self, model: mujoco.MjModel, num_threads: int):
        self._rollout = mujoco.rollout.Rollout(nthread=num_threads)
        self._datas = [mujoco.MjData(model) for _ in range(max(num_threads, 1))]

    def models_changed(self, envs: Iterable[int]) -> None:
        """It reads the models themselves."""

    def step(
        self,
        models: Sequence[mujoco.MjModel],
        state_nx: np.ndarray,
        warmstart_nv: np.ndarray,
        control_nc: np.ndarray,
        spec: int,
        states_nsx: np.ndarray,
        sensors_nsy: np.ndarray,
    ) -> None:
        """Advance all environments by S substeps with constant controls."""
        control = np.repeat(control_nc[:, None], states_nsx.shape[1], axis=1)
        self._run(models, state_nx, warmstart_nv, control, spec, states_nsx, sensors_nsy)

    def measure(
        self,
        models: Sequence[mujoco.MjModel],
        envs_k: np.ndarray,
        state_nx: np.ndarray,
        warmstart_nv: np.ndarray,
        control_kc: np.ndarray,
        spec: int,
        sensors_ky: np.ndarray,
        *,
        cheap: bool,
    ) -> None:
        """Sensor data of environments as they are: it makes a step and discards the state."""
        models = [models[env] for env in envs_k]
        unused = np.empty((len(envs_k), 1, state_nx.shape[1]))
        with _kinematics_only(models) if cheap else contextlib.nullcontext():
            self._run(
                models, state_nx[envs_k], warmstart_nv[envs_k], control_kc[:, None], spec, unused,
                sensors_ky[:, None],
            )  # fmt: skip

    def close(self) -> None:
        """End the threads. Calling it twice is allowed."""
        if self._rollout.rollout_ is not None:
            self._rollout.close()

    def _run(
        self,
        models: Sequence[mujoco.MjModel],
        state: np.ndarray,
        warmstart: np.ndarray,
        control: np.ndarray,
        spec: int,
        states: np.ndarray,
        sensors: np.ndarray,
    ) -> None:
        self._rollout.rollout(
            models,
            self._datas,
            state,
            control,
            control_spec=spec,
            skip_checks=True,
            nstep=states.shape[1],
            initial_warmstart=warmstart,
            state=states,
            sensordata=sensors,
        )


@contextlib.contextmanager
def _kinematics_only(models: Sequence[mujoco.MjModel]) -> Iterator[None]:
    """Leave out contacts and constraints."""
    options = list({id(model): model.opt for model in models}.values())
    flags, integrator = options[0].disableflags, options[0].integrator
    for option in options:
        option.disableflags = flags | _KINEMATICS_ONLY
        option.integrator = _EULER
    try:
        yield
    finally:
        for option in options:
            option.disableflags = flags
            option.integrator = integrator
