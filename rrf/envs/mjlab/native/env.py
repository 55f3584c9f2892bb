"""mjlab's environment on the native simulation.

Managers, terms, entities and sensors are mjlab's own, so observations, rewards, terminations,
commands, events and curricula are mjlab's own, too. Only the simulation below them differs. If it
cannot compute something, an error names the terms that ask for it.
"""

import contextlib
import dis
import functools
import itertools
import types
import typing
from collections.abc import Callable, Iterator

import torch
from mjlab.actuator.xml_actuator import XmlActuator
from mjlab.entity import Entity
from mjlab.entity.entity import EntityIndexing
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.mdp import actions
from mjlab.managers.event_manager import EventManager
from mjlab.managers.manager_base import ManagerBase
from mjlab.scene import Scene
from mjlab.sensor import CameraSensor, ContactSensor, RayCastSensor, Sensor

from rrf.envs.failure import in_a_line
from rrf.envs.mjlab.native.cameras import CameraImages
from rrf.envs.mjlab.native.simulation import NativeSimulation
from rrf.envs.mjlab.native.snapshot import capture, restore, unsaved
from rrf.envs.mjlab.native.views import NativeData, NativeModel, UnsupportedFieldError

_MANAGERS = (
    "event_manager", "command_manager", "action_manager", "observation_manager",
    "termination_manager", "reward_manager", "curriculum_manager", "metrics_manager",
)  # fmt: skip
_HELD_ACTIONS = (
    actions.JointPositionAction,
    actions.JointVelocityAction,
    actions.JointEffortAction,
    actions.TendonLengthAction,
    actions.TendonVelocityAction,
    actions.TendonEffortAction,
    actions.SiteEffortAction,
)

_BLIND_UPDATES = (Sensor.update, ContactSensor.update)  # they read contacts or nothing
_NOT_STATE = (
    ManagerBasedRlEnv, Scene, NativeSimulation, NativeData, NativeModel, Entity, EntityIndexing,
    CameraImages,
)  # fmt: skip


class NativeRlEnv(ManagerBasedRlEnv):
    """An mjlab task on a CPU.

    Raises:
        ValueError: If terms or sensors cannot be computed here; the message names them.
    """

    sim: NativeSimulation  # type: ignore[assignment]
    begin: "Callable[[NativeRlEnv, torch.Tensor], None] | None"
    """Changes how the episodes of environments, int64 [K], begin, after all that mjlab resets."""

    def __init__(
        self, cfg: ManagerBasedRlEnvCfg, num_threads: int = 1, *, fresh_contacts: bool = True
    ):
        # The parent's constructor is not called: it creates mujoco_warp's simulation.
        self.cfg = cfg
        self.begin = None
        if cfg.seed is not None:
            cfg.seed = self.seed(cfg.seed)
        self._sim_step_counter = 0
        self.extras = {"log": {}}
        self.obs_buf = {}
        self.render_mode = None
        self._offline_renderer = None
        num_envs = cfg.scene.num_envs
        self._manual_reset_pending = torch.zeros(num_envs, dtype=torch.bool)
        self._command_dt = torch.zeros(num_envs)
        self.common_step_counter = 0
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.reset_buf, self.reset_terminated, self.reset_time_outs = torch.zeros(
            3, num_envs, dtype=torch.bool
        )  # mjlab makes these four in its first step, but terms may read them when probed
        self.reward_buf = torch.zeros(num_envs)
        with naming_terms():
            self._build_scene(num_threads, fresh_contacts)
            self.load_managers()
            self.setup_manager_visualizers()
        self.sim.hold_controls(self._controls_are_held())
        self._probe_terms()

    def _build_scene(self, num_threads: int, fresh_contacts: bool) -> None:
        if self.cfg.sim.nan_guard.enabled:
            raise ValueError(
                "sim.nan_guard.enabled is true, but only mjlab's own simulation has this guard; "
                "leave it out (the native backend resets environments that diverge, and "
                "guard.on_nan sets what training does about a NaN), or use backend=mjlab"
            )
        self.scene = Scene(self.cfg.scene, device="cpu")
        variants = [name.rstrip("/") for name, _ in self.scene.collect_variant_info()]
        if variants:
            what = [f"mesh variants of entity '{n}'" for n in variants]
            raise UnsupportedFieldError(", ".join(what))
        if self._moves_centres_of_mass():
            for body in self.scene.spec.bodies[1:]:
                body.simple = 0  # the compiler's shortcut for centres of mass in the origin
        self.sim = NativeSimulation(
            num_envs=self.scene.num_envs,
            cfg=self.cfg.sim,
            spec=self.scene.spec,
            decimation=self.cfg.decimation,
            num_threads=num_threads,
            fresh_contacts=fresh_contacts,
        )
        raycasts = [s for s in self.scene.sensors.values() if isinstance(s, RayCastSensor)]
        for sensor in raycasts:
            if type(sensor).raycast_kernel is not RayCastSensor.raycast_kernel:
                raise UnsupportedFieldError(f"rays that sensor '{sensor.cfg.name}' casts itself")
        cameras = [s for s in self.scene.sensors.values() if isinstance(s, CameraSensor)]
        for sensor in (*raycasts, *cameras):
            sensor.requires_sensor_context = False  # else the scene builds one with mujoco_warp
        self.scene.initialize(
            mj_model=self.sim.mj_model,
            model=self.sim.model,  # type: ignore[arg-type]
            data=self.sim.data,  # type: ignore[arg-type]
        )
        self.sim.use_raycasts(raycasts)
        self.sim.use_cameras(cameras, raycasts)

    def _moves_centres_of_mass(self) -> bool:
        """Whether an event moves centres of mass."""
        terms = [term for term in self.cfg.events.values() if term is not None]
        fields = {name for term in terms for name in getattr(term.func, "model_fields", ())}
        return not fields.isdisjoint(("body_ipos", "body_iquat"))

    def _reset_idx(self, env_ids: torch.Tensor | None = None) -> None:
        super()._reset_idx(env_ids)
        if self.begin is not None:
            self.begin(self, torch.arange(self.num_envs) if env_ids is None else env_ids)

    def close(self) -> None:
        self.sim.close()
        self.recorder_manager.close()

    def state_roots(self) -> dict[str, typing.Any]:
        """The objects whose values determine how this environment continues."""
        roots = {name: getattr(self, name) for name in _MANAGERS}
        roots |= {f"entity.{name}": entity for name, entity in self.scene.entities.items()}
        roots |= {f"sensor.{name}": sensor for name, sensor in self.scene.sensors.items()}
        return roots | {"env": self._kept_by_terms()}

    def _kept_by_terms(self) -> dict[str, typing.Any]:
        """The attributes that terms have added to this object: those that no method of its class
        sets.
        """
        set_by_methods = _attributes_set_by(type(self))
        return {name: value for name, value in vars(self).items() if name not in set_by_methods}

    def capture(self) -> tuple[dict[str, torch.Tensor], dict[str, typing.Any]]:
        """Everything except the simulation's state and the random generators."""
        return capture(self.state_roots(), skip=_NOT_STATE)

    def unsaved(self) -> list[str]:
        """Paths of what terms keep and `capture` leaves out: random generators, deques, sets."""
        return unsaved(self.state_roots(), skip=_NOT_STATE)

    def restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, typing.Any]) -> None:
        roots = self.state_roots()
        restore(roots, tensors, facts, skip=_NOT_STATE)
        vars(self).update(roots["env"])

    def _controls_are_held(self) -> bool:
        """Whether no term, actuator, sensor or metric reads the state between two substeps."""
        if any(type(sensor).update not in _BLIND_UPDATES for sensor in self.scene.sensors.values()):
            return False
        for entity in self.scene.entities.values():
            if type(entity).write_data_to_sim is not Entity.write_data_to_sim:
                return False
            if entity._fused_actuator_group._groups or entity._builtin_group._delayed_groups:
                return False
            for actuator in entity._custom_actuators:
                if actuator.has_delay or type(actuator) is not XmlActuator:
                    return False
        terms = [self.action_manager.get_term(name) for name in self.action_manager.active_terms]
        held = [kind.apply_actions for kind in _HELD_ACTIONS]
        return all(type(term).apply_actions in held for term in terms) and not getattr(
            self.metrics_manager, "_substep_term_indices", []
        )

    def _probe_terms(self) -> None:
        """Evaluate every term once.

        This finds the terms that cannot be computed here, and the sensors that observations read.
        """
        tensors, facts = self.capture()
        known = set(vars(self))
        unsupported = []
        for manager, name, func, params in self._terms():
            for sensor in self.scene.sensors.values():
                sensor._invalidate_cache()
            try:
                value = func(self, **params)
            except UnsupportedFieldError as error:
                unsupported.append(f"{manager} term '{name}' ({error})")
                continue
            except Exception as error:  # broad: terms are foreign code and may raise anything
                raise ValueError(_failure(f"{manager} term '{name}'", error)) from error
            shape = tuple(getattr(value, "shape", ()))
            if manager != "metrics" and shape[:1] != (self.num_envs,):
                raise ValueError(
                    f"{manager} term '{name}' gives a tensor of shape {list(shape)}, expected "
                    f"{self.num_envs} rows, one per environment"
                )
            if manager == "observation":
                self.sim.observe(s for s in self.scene.sensors.values() if s._cache_valid)
        if unsupported:
            raise ValueError(_message(unsupported))
        for name in set(vars(self)) - known:  # a term made it and will make it again
            delattr(self, name)
        self.restore(tensors, facts)

    def _terms(self) -> Iterator[tuple[str, str, typing.Any, dict]]:
        observations = self.observation_manager
        for group, names in observations.active_terms.items():
            for name in names:
                term = observations.get_term_cfg(group, name)
                yield "observation", f"{group}/{name}", term.func, term.params
        for manager in ("reward", "termination", "metrics"):
            owner = getattr(self, f"{manager}_manager")
            if not owner.active_terms:
                continue
            for name, term in zip(owner._term_names, owner._term_cfgs, strict=True):
                if getattr(term, "weight", 1.0) != 0.0:
                    yield manager, name, term.func, term.params


@functools.cache
def _attributes_set_by(kind: type) -> frozenset[str]:
    """The names of all attributes that the methods of a class assign, on any object."""
    methods = [value for base in kind.__mro__ for value in vars(base).values()]
    codes = [method.__code__ for method in methods if isinstance(method, types.FunctionType)]
    steps = itertools.chain.from_iterable(map(dis.get_instructions, codes))
    return frozenset(step.argval for step in steps if step.opname == "STORE_ATTR")


@contextlib.contextmanager
def naming_terms() -> Iterator[None]:
    """Turn an error inside a term, or a request that is not supported here, into a ValueError that
    names the term.
    """
    try:
        yield
    except UnsupportedFieldError as error:
        term = _failing_term(error.__traceback__)
        what = f"{term} ({error})" if term else str(error)
        raise ValueError(_message([what])) from error
    except Exception as error:  # broad, as in `NativeRlEnv._probe_terms`
        term = _failing_term(error.__traceback__)
        if term is None:
            raise
        raise ValueError(_failure(term, error)) from error


def _failing_term(trace: types.TracebackType | None) -> str | None:
    """The manager's term, or the sensor, that was running: "event term 'push_robot'"."""
    sensors: dict[str, Sensor] = {}
    while trace:
        caller, trace = trace.tb_frame.f_locals, trace.tb_next
        manager = caller.get("self")
        if isinstance(manager, Scene):
            sensors = manager.sensors
        for name, sensor in sensors.items():
            if sensor is manager:
                return f"sensor '{name}'"
        if not isinstance(manager, ManagerBase) or trace is None:
            continue
        names = _names_at_work(manager, caller, trace.tb_frame.f_code.co_name)
        if names:
            kind = type(manager).__name__.removesuffix("Manager").lower()
            return f"{kind} term {' or '.join(repr(name) for name in names)}"
    return None


def _names_at_work(manager: ManagerBase, caller: dict[str, typing.Any], called: str) -> list[str]:
    """The terms that a method of `manager` was running.

    `caller` holds the local variables of this method, and `called` is the function that it called.
    """
    if isinstance(manager, EventManager) and "mode" in caller:
        terms = manager._mode_term_cfgs[caller["mode"]]
        if called == "recompute_constants":
            is_running = [
                hasattr(term.func, "recompute") and term.func.recompute > 0 for term in terms
            ]
        else:
            is_running = [term is caller.get("term_cfg") for term in terms]
        return list(itertools.compress(manager._mode_term_names[caller["mode"]], is_running))
    for variable in ("term_name", "name"):
        if isinstance(caller.get(variable), str):
            return [caller[variable]]
    terms = getattr(manager, "_terms", {})
    return [name for name, term in terms.items() if term is caller.get("term")]


def _failure(term: str, error: Exception) -> str:
    return f"{term} failed: {in_a_line(error)}"


def _message(unsupported: list[str]) -> str:
    return (
        "the native backend cannot compute: "
        + "; ".join(unsupported)
        + ". Remove what you do not need by overrides (e.g. 'rewards.<name>': null), or use "
        "backend=mjlab (with a GPU)"
    )
