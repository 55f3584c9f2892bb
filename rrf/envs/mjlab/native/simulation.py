"""mjlab's `Simulation`, stepped by MuJoCo's C library on several threads.

mjlab's environment calls `step` once per substep. If the controls cannot change between the
substeps (`controls_are_held`), the first call advances all substeps, and each call publishes one of
them. Positions and velocities are published with the last substep. Otherwise each call advances one
substep.

As in mujoco_warp, the derived quantities after `step` belong to the state before the last substep,
until `forward` refreshes them. `forward` works on the environments that changed since they were
last measured. It solves for contact forces only where something will read them: for environments
that were just reset, and for all if an observation reads a contact sensor that no reward has read
(and so cached) in this step. Otherwise, and without `fresh_contacts`, contact sensors keep the
values of the last substep, which is also what their cache would have returned.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import typing
from collections.abc import Iterable

import mujoco
import numpy as np
import torch
from mjlab.managers.event_manager import RecomputeLevel
from mjlab.sensor import BuiltinSensor, CameraSensor, ContactSensor, RayCastSensor, Sensor
from mjlab.sim import SimulationCfg

from rrf.envs.mjlab.native.cameras import CameraImages
from rrf.envs.mjlab.native.physics_model import build_physics_model
from rrf.envs.mjlab.native.raycast import TerrainRays
from rrf.envs.mjlab.native.stepping import RandomisedParameters, Stepper
from rrf.envs.mjlab.native.views import NativeData, NativeModel, UnsupportedFieldError

_STATE = mujoco.mjtState
_INPUTS = {
    "ctrl": int(_STATE.mjSTATE_CTRL),
    "qfrc_applied": int(_STATE.mjSTATE_QFRC_APPLIED),
    "xfrc_applied": int(_STATE.mjSTATE_XFRC_APPLIED),
    "mocap_pos": int(_STATE.mjSTATE_MOCAP_POS),
    "mocap_quat": int(_STATE.mjSTATE_MOCAP_QUAT),
}  # in the order in which MuJoCo packs them
_MOVING = ("qpos", "qvel", "mocap_pos", "mocap_quat")  # they determine poses and velocities
_BUFFERS = (
    "qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat",
    "time", "sensordata", "measured",
)  # fmt: skip


class NativeSimulation:
    """The part of mjlab's `Simulation` that its environment, scene and terms use."""

    device = "cpu"

    def __init__(
        self,
        num_envs: int,
        cfg: SimulationCfg,
        spec: mujoco.MjSpec,
        decimation: int,
        num_threads: int,
        *,
        fresh_contacts: bool = True,
    ):
        self.cfg = cfg
        self.num_envs = num_envs
        self.decimation = decimation
        self.controls_are_held = False
        self.fresh_contacts = fresh_contacts
        self._observed_contacts: list[ContactSensor] = []
        self._observes_accelerations = False
        self.diverged = torch.zeros(num_envs, dtype=torch.bool)  # in this control step
        slim = spec.copy()
        self.mj_model = spec.compile()
        cfg.mujoco.apply(self.mj_model)
        self.physics = build_physics_model(slim, self.mj_model, cfg.mujoco.apply)
        self.mj_data = mujoco.MjData(self.mj_model)
        self.model = NativeModel(self.mj_model, num_envs)
        self.data = NativeData(self.physics, self.model, num_envs)
        self._contacts = torch.from_numpy(self.physics.contact_columns)
        task_columns = self.physics.cheap_columns < self.physics.num_task_columns
        self._cheap = torch.from_numpy(self.physics.cheap_columns[task_columns])
        self._defaults: dict[str, torch.Tensor] = {}
        self._inputs = ["ctrl"] + ["mocap_pos", "mocap_quat"] * (self.mj_model.nmocap > 0)
        self._raycasts: list[tuple[RayCastSensor, TerrainRays]] = []
        self._images: CameraImages | None = None
        self.stepper = Stepper(self.physics, num_envs, 1, num_threads)
        self._parameters = RandomisedParameters(self.model, self.stepper)
        self._substep = 0
        self._dirty = np.ones(num_envs, dtype=bool)  # changed since last measured
        self._was_reset = np.ones(num_envs, dtype=bool)  # since the last forward
        self._stale_rays = np.ones(num_envs, dtype=bool)  # moved since rays were last cast
        self._measured = {name: torch.zeros_like(getattr(self.data, name)) for name in _MOVING}
        self.reset()
        self.forward()

    def hold_controls(self, held: bool) -> None:
        """Set whether the controls stay the same during a control step."""
        self.controls_are_held = held
        self.stepper.set_num_substeps(self.decimation if held else 1)

    def observe(self, sensors: Iterable[Sensor]) -> None:
        """Set which sensors observations read, so that `forward` refreshes them."""
        for sensor in sensors:
            if isinstance(sensor, ContactSensor) and sensor not in self._observed_contacts:
                self._observed_contacts.append(sensor)
            elif isinstance(sensor, BuiltinSensor):
                expensive = self.physics.acceleration_sensors
                self._observes_accelerations |= sensor._name in expensive

    # What mjlab's environment calls.

    def step(self) -> None:
        """Advance one substep, or publish the next one that is already computed."""
        num_substeps = self.stepper.states_NSX.shape[1]
        if self._substep % num_substeps == 0:
            self._push_model()
            self._write_state()
            controls, spec = self._pack_inputs(slice(None))
            diverged = torch.from_numpy(self.stepper.step(controls, spec))
            self.diverged = diverged if self._substep == 0 else self.diverged | diverged
        within = self._substep % num_substeps
        is_last = within == num_substeps - 1
        self._publish_substep(within, is_last)
        if is_last:
            self._read_state()
            self._dirty[:] = True
        self._substep = (self._substep + 1) % self.decimation

    def forward(self) -> None:
        """Refresh the derived quantities of the environments that changed."""
        self._push_model()
        for name, measured in self._measured.items():
            if measured.numel():
                changed = (getattr(self.data, name) != measured).flatten(1).any(1)
                self._dirty |= changed.numpy()
        self._write_state()
        everyone = self._observes_accelerations or (
            self.fresh_contacts
            and any(not sensor._cache_valid for sensor in self._observed_contacts)
        )
        in_full = self._was_reset | everyone
        self._measure(np.flatnonzero(self._dirty & in_full), cheap=False)
        self._measure(np.flatnonzero(self._dirty & ~in_full), cheap=True)
        self._stale_rays |= self._dirty
        self._dirty[:] = False
        self._was_reset[:] = False

    def reset(self, env_ids: torch.Tensor | None = None) -> None:
        """Set initial positions, zero velocities and zero inputs."""
        rows = slice(None) if env_ids is None else env_ids
        data = self.data
        data.qpos[rows] = torch.from_numpy(self.mj_model.qpos0).float()
        if "qpos0" in self.model.expanded:
            data.qpos[rows] = self.model.qpos0[rows]
        for buffer in (data.qvel, data.act, data.ctrl, data.qfrc_applied, data.xfrc_applied):
            buffer[rows] = 0.0
        for buffer in (data.time, data.sensordata):
            buffer[rows] = 0.0
        self._reset_mocap(rows)
        at = slice(None) if env_ids is None else env_ids.numpy()
        self.stepper.state_NX[at] = 0.0
        self.stepper.warmstart_NV[at] = 0.0
        self._dirty[at] = True
        self._was_reset[at] = True

    def sense(self) -> None:
        """Cast the rays of the ray sensors and draw the images of the cameras, for the environments
        that moved.
        """
        rows = np.flatnonzero(self._stale_rays)
        for sensor, rays in self._raycasts:
            sensor.prepare_rays()
            rays.cast(sensor, torch.from_numpy(rows))
            sensor.postprocess_rays()
        if self._images is not None:
            self._images.draw(rows)
        self._stale_rays[:] = False

    def expand_model_fields(self, fields: tuple[str, ...]) -> None:
        """Let events give every environment its own values of these fields."""
        self._parameters.watch(fields)

    def recompute_constants(self, level: RecomputeLevel) -> None:
        """Recompute what MuJoCo derives from the parameters that events changed."""
        self._parameters.recompute(self._push_model(), level)

    def get_default_field(self, field: str) -> torch.Tensor:
        """A field's values in the compiled model, before any event."""
        if field not in self._defaults:
            self._defaults[field] = self.model.row(field)
        return self._defaults[field]

    @property
    def default_model_fields(self) -> dict[str, torch.Tensor]:
        return self._defaults

    @property
    def per_world_default_fields(self) -> set[str]:
        return set()

    @property
    def expanded_fields(self) -> set[str]:
        return set(self.model.expanded)

    @property
    def world_to_variant(self) -> dict[str, torch.Tensor]:
        return {}

    def __getattr__(self, name: str) -> typing.Any:
        raise UnsupportedFieldError(f"sim.{name}")

    # Not in mjlab's `Simulation`.

    def use_raycasts(self, sensors: list[RayCastSensor]) -> None:
        """Cast the rays of these sensors in `sense`. mujoco_warp does not cast them."""
        self._raycasts = [(sensor, TerrainRays(self.mj_model, sensor)) for sensor in sensors]
        for sensor in sensors:
            sensor.set_context(self)  # type: ignore[arg-type]

    def use_cameras(self, cameras: list[CameraSensor], raycasts: list[RayCastSensor]) -> None:
        """Draw what these cameras see in `sense`; `raycasts` are the scene's ray sensors."""
        if cameras:
            self._images = CameraImages(self.mj_model, self.model, self.data, cameras, raycasts)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, typing.Any]]:
        """Copies of everything that determines how the simulation continues."""
        tensors = {name: getattr(self.data, name).clone() for name in _BUFFERS}
        tensors |= {f"model.{name}": t.clone() for name, t in self.model.expanded.items()}
        tensors |= {f"measured_{name}": t.clone() for name, t in self._measured.items()}
        tensors |= {
            "state": torch.from_numpy(self.stepper.state_NX.copy()),
            "warmstart": torch.from_numpy(self.stepper.warmstart_NV.copy()),
            "flags": torch.from_numpy(np.stack([self._dirty, self._was_reset, self._stale_rays])),
        }
        return tensors, {"inputs": list(self._inputs), "substep": self._substep}

    def load_state(
        self, tensors: typing.Mapping[str, torch.Tensor], facts: typing.Mapping[str, typing.Any]
    ) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: If the state has another number of environments, or is of another model.
        """
        for name in _BUFFERS:
            current = getattr(self.data, name)
            if current.shape != tensors[name].shape:
                raise ValueError(
                    f"'{name}' has shape {list(tensors[name].shape)} in the state and "
                    f"{list(current.shape)} here"
                )
            current.copy_(tensors[name])
        for name, tensor in self.model.expanded.items():
            tensor.copy_(tensors[f"model.{name}"])
        changed = self._push_model()
        if self._parameters.have_derived:
            self._parameters.recompute(changed, RecomputeLevel.none)
        self.stepper.state_NX[...] = tensors["state"].numpy()
        self.stepper.warmstart_NV[...] = tensors["warmstart"].numpy()
        for name, measured in self._measured.items():
            measured.copy_(tensors[f"measured_{name}"])
        self._dirty, self._was_reset, self._stale_rays = tensors["flags"].numpy().copy()
        self._inputs, self._substep = list(facts["inputs"]), facts["substep"]
        self.data.forget_derived()

    def close(self) -> None:
        self.stepper.close()

    def _pack_inputs(self, rows) -> tuple[np.ndarray, int]:
        """The controls [K, C], and a bit mask of the inputs in them."""
        for name in ("qfrc_applied", "xfrc_applied"):
            if name not in self._inputs and bool(getattr(self.data, name).any()):
                self._inputs = [n for n in _INPUTS if n in (*self._inputs, name)]
        spec = sum(_INPUTS[name] for name in self._inputs)
        parts = [getattr(self.data, name)[rows].flatten(1) for name in self._inputs]
        return torch.cat(parts, dim=1).double().numpy(), spec

    def _write_state(self) -> None:
        """Write positions and velocities as terms see them (float32) into the state to step."""
        stepper, data = self.stepper, self.data
        stepper.state_NX[:, stepper.qpos] = data.qpos.numpy()
        stepper.state_NX[:, stepper.qvel] = data.qvel.numpy()
        stepper.state_NX[:, stepper.act] = data.act.numpy()

    def _read_state(self) -> None:
        stepper, data = self.stepper, self.data
        state = torch.from_numpy(stepper.state_NX)
        data.qpos.copy_(state[:, stepper.qpos])
        data.qvel.copy_(state[:, stepper.qvel])
        data.act.copy_(state[:, stepper.act])
        data.time.copy_(state[:, 0])

    def _publish_substep(self, within: int, is_last: bool) -> None:
        sensors = torch.from_numpy(self.stepper.sensors_NSY[:, within])
        first = self.physics.num_task_columns
        if not is_last:
            # Before the last substep, only contact sensors are read.
            sensors, columns = sensors[:, self._contacts].float(), self._contacts
            self._put(self.data.sensordata, sensors, columns)
            return
        self._put(self.data.sensordata, sensors[:, :first], None)
        self._put(self.data.measured, sensors[:, first:], None)
        self.data.forget_derived()

    def _put(
        self, target: torch.Tensor, values: torch.Tensor, columns: torch.Tensor | None
    ) -> None:
        """Write `values` into `target`. Diverged environments keep their old values."""
        if bool(self.diverged.any()):
            kept = target if columns is None else target[:, columns]
            values = torch.where(self.diverged[:, None], kept, values.float())
        if columns is None:
            target.copy_(values)
        else:
            target[:, columns] = values

    def _measure(self, rows: np.ndarray, *, cheap: bool) -> None:
        if not len(rows):
            return
        data, everyone = self.data, len(rows) == self.num_envs
        at = slice(None) if everyone else torch.from_numpy(rows)
        controls, spec = self._pack_inputs(at)
        sensors = torch.from_numpy(self.stepper.measure(rows, controls, spec, cheap=cheap))
        first = self.physics.num_task_columns
        if not cheap:
            data.sensordata[at] = sensors[:, :first].float()
        elif everyone:
            data.sensordata[:, self._cheap] = sensors[:, self._cheap].float()
        else:
            data.sensordata[at[:, None], self._cheap] = sensors[:, self._cheap].float()  # type: ignore[index]
        data.measured[at] = sensors[:, first:].float()
        for name, measured in self._measured.items():
            measured[at] = getattr(data, name)[at]
        data.forget_derived()

    def _push_model(self) -> list[int]:
        """Write parameters that events changed into the models; returns the environments that
        changed.
        """
        self.model.check_unwritten()
        changed = self._parameters.push()
        self._dirty[changed] = True
        return changed

    def _reset_mocap(self, rows) -> None:
        model, data = self.mj_model, self.data
        bodies = np.flatnonzero(model.body_mocapid >= 0)
        order = model.body_mocapid[bodies]
        for field, target in ((model.body_pos, data.mocap_pos), (model.body_quat, data.mocap_quat)):
            default = np.zeros((model.nmocap, field.shape[1]))
            default[order] = field[bodies]
            target[rows] = torch.from_numpy(default).float()
