"""`mujoco.rollout` of many environments of one model in less time, and the same to the last bit.

The environments may differ in parameters. `mujoco.rollout` takes a model of its own for each of
them, which then comes from memory twice per control step. Here a thread has one model, and
`rollout.c` writes the words of an environment into it, in which its model is another. Between two
substeps only the sensors that are read there are computed, and a measurement of the kinematics
computes no more than those.

Legend: N environments, K of them chosen, S substeps, X width of a state, C of controls, Y of sensor
data, V degrees of freedom, W words in which models differ.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import copy
import ctypes
import functools
import typing
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from rrf.compiled import compiler

_STEP, _MEASURE, _MEASURE_CHEAPLY = range(3)  # as in rollout.c


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled, or where there is no MuJoCo."""
    import mujoco

    folder = Path(mujoco.__file__).parent
    built = next(iter(sorted(folder.glob("libmujoco*.so*"))), None)
    if built is None or not hasattr(mujoco.MjModel, "_address"):
        return None
    words = ("-I", str(folder / "include"), str(built), f"-Wl,-rpath,{folder}")
    code = compiler.library(Path(__file__).with_suffix(".c"), words)
    if code is not None:
        code.num_words.restype = ctypes.c_long
        code.num_words.argtypes = [ctypes.c_void_p]
        code.word.restype = ctypes.c_void_p
        code.word.argtypes = [ctypes.c_void_p, ctypes.c_long]
        code.compare.argtypes = [ctypes.c_void_p] * 3
        code.read_words.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_long,
            ctypes.c_void_p,
        ]
        code.work.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return code


class _Worker(ctypes.Structure):
    _fields_: typing.ClassVar = [(name, ctypes.c_void_p) for name in ("model", "data", "words")]


class _Job(ctypes.Structure):
    _fields_: typing.ClassVar = [
        *((name, ctypes.c_long) for name in ("rows", "substeps", "num_words", "spec")),
        *((name, ctypes.c_long) for name in ("states", "controls", "sensors")),
        *((name, ctypes.c_void_p) for name in ("base", "envs", "words", "state", "warmstart")),
        *((name, ctypes.c_void_p) for name in ("control", "states_out", "sensors_out")),
        *((name, ctypes.c_void_p) for name in ("all_stages", "few_stages")),
        ("next", ctypes.c_long),
    ]


class Rollout:
    """Threads that step and measure environments. Only where there is a `library`.

    Args:
        model: The model of all environments (mujoco.MjModel), which the caller keeps.
        num_envs: N.
        num_threads: Threads; 0 is the calling thread only.
        between: Bool for each sensor, whether it is computed in the first substeps, too.
        cheap: Bool for each sensor, whether a cheap measurement computes it; it must need neither
            contacts nor accelerations.
    """

    def __init__(
        self,
        model: typing.Any,
        num_envs: int,
        num_threads: int,
        between: np.ndarray,
        cheap: np.ndarray,
    ):
        import mujoco

        self._code, self._base = library(), model
        count = max(num_threads, 1)
        self._models = [copy.copy(model) for _ in range(count)]
        self._datas = [mujoco.MjData(model) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count - 1) if count > 1 else None
        stages = np.ascontiguousarray(model.sensor_needstage, dtype=np.int32)
        none = int(mujoco.mjtStage.mjSTAGE_NONE)
        self._stages = stages.copy()
        self._between, self._cheap = (
            np.where(mask, stages, none).astype(np.int32) for mask in (between, cheap)
        )
        self._everyone = np.arange(num_envs)
        self._differs = np.zeros(self._code.num_words(model._address), dtype=np.uint8)
        self._changed: set[int] = set()
        self._use_words([], [])

    def models_changed(self, envs: Iterable[int]) -> None:
        """Note that the models of these environments were written to."""
        self._changed.update(envs)

    def step(
        self,
        models: Sequence[typing.Any],
        state_nx: np.ndarray,
        warmstart_nv: np.ndarray,
        control_nc: np.ndarray,
        spec: int,
        states_nsx: np.ndarray,
        sensors_nsy: np.ndarray,
    ) -> None:
        """Advance all environments by S substeps with constant controls.

        Args:
            models: The model of each environment, of the same sizes as the first.
            spec: What the controls are, bits of mjtState.
            states_nsx: Receives the state after each substep.
            sensors_nsy: Receives the sensor data of each substep; before the last one, only those
                of sensors chosen by `between` have a meaning.
        """
        self._run(
            _STEP, models, self._everyone, state_nx, warmstart_nv, control_nc, spec,
            sensors_nsy, states_nsx,
        )  # fmt: skip

    def measure(
        self,
        models: Sequence[typing.Any],
        envs_k: np.ndarray,
        state_nx: np.ndarray,
        warmstart_nv: np.ndarray,
        control_kc: np.ndarray,
        spec: int,
        sensors_ky: np.ndarray,
        *,
        cheap: bool,
    ) -> None:
        """Sensor data of environments as they are.

        Args:
            sensors_ky: Receives the sensor data; of a cheap measurement only those of sensors
                chosen by `cheap` have a meaning.
        """
        kind = _MEASURE_CHEAPLY if cheap else _MEASURE
        envs_k = np.ascontiguousarray(envs_k, dtype=np.int64)
        self._run(kind, models, envs_k, state_nx, warmstart_nv, control_kc, spec, sensors_ky)

    def close(self) -> None:
        """End the threads. Calling it twice is allowed."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(
        self,
        kind: int,
        models: Sequence[typing.Any],
        envs: np.ndarray,
        state: np.ndarray,
        warmstart: np.ndarray,
        control: np.ndarray,
        spec: int,
        sensors: np.ndarray,
        states: np.ndarray | None = None,
    ) -> None:
        self._refresh(models)
        control = np.ascontiguousarray(control)
        assert all(array.flags.c_contiguous for array in (state, warmstart, sensors))
        few = self._cheap if kind == _MEASURE_CHEAPLY else self._between
        job = _Job(
            rows=len(envs),
            substeps=1 if states is None else states.shape[1],
            num_words=len(self._indices),
            spec=spec,
            states=state.shape[1],
            controls=control.shape[1],
            sensors=sensors.shape[-1],
            base=self._base._address,
            envs=envs.ctypes.data,
            words=self._words.ctypes.data,
            state=state.ctypes.data,
            warmstart=warmstart.ctypes.data,
            control=control.ctypes.data,
            states_out=None if states is None else states.ctypes.data,
            sensors_out=sensors.ctypes.data,
            all_stages=self._stages.ctypes.data,
            few_stages=few.ctypes.data,
        )
        work = functools.partial(self._code.work, ctypes.byref(job))
        others = (
            [self._pool.submit(work, ctypes.byref(worker), kind) for worker in self._workers[1:]]
            if self._pool
            else []
        )
        work(ctypes.byref(self._workers[0]), kind)
        for other in others:
            other.result()

    def _refresh(self, models: Sequence[typing.Any]) -> None:
        """Read the words of environments whose models changed."""
        if not self._changed:
            return
        changed, self._changed = sorted(self._changed), set()
        base, code = self._base._address, self._code
        known = int(self._differs.sum())
        for env in changed:
            code.compare(base, models[env]._address, self._differs.ctypes.data)
        if self._differs.sum() > known:
            self._use_words(np.flatnonzero(self._differs), models)
            return
        for env in changed:
            self._read(models[env], self._words[env])

    def _use_words(self, indices: Sequence[int] | np.ndarray, models: Sequence[typing.Any]) -> None:
        self._indices = np.ascontiguousarray(indices, dtype=np.int64)
        self._words = np.zeros((len(self._everyone), len(indices)), dtype=np.uint32)
        for env, model in enumerate(models):
            self._read(model, self._words[env])
        places = [
            np.array([self._code.word(model._address, int(i)) for i in indices], dtype=np.uint64)
            for model in self._models
        ]
        self._workers = [
            _Worker(model._address, data._address, at.ctypes.data)
            for model, data, at in zip(self._models, self._datas, places, strict=True)
        ]
        self._places = places  # the memory to which the workers point

    def _read(self, model: typing.Any, to: np.ndarray) -> None:
        self._code.read_words(
            model._address, self._indices.ctypes.data, len(self._indices), to.ctypes.data
        )
