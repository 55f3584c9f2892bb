"""A vector environment whose simulator runs in a foreign interpreter.

All slots of one environment are in one process there. `WorkerVecEnv` and the backends spread
environments over processes; then each of those has a foreign process of its own, which ends with
it. If the foreign process dies, the call raises a ChildError.

Legend: C cameras, B slots of a call, H steps in an action chunk, D state dimension.
"""

import mmap
import os
import typing
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.foreign.interpreters import interpreter
from rrf.envs.foreign.process import ForeignChild
from rrf.envs.process.child import ChildError
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions

_TIMEOUT_S = 600.0  # the first call imports the simulator, which may compile


class ForeignVecEnv:
    """See `rrf.envs.vec_env.VecEnv`."""

    def __init__(self, cfg: ForeignVecEnvCfg):
        """Start the process.

        Raises:
            ValueError: If the interpreter is not set up; the message says what to type.
        """
        self.cfg = cfg
        self.num_envs, self.chunk_length = cfg.num_envs, cfg.chunk_length
        self.max_episode_steps, self.action_dim = cfg.max_episode_steps, cfg.action_dim
        self.state_dim, self.fps = cfg.state_dim, cfg.fps
        self.cpu_s: dict[str, float] = {}
        """CPU seconds that the foreign process has spent so far, by activity."""
        self._slots = Slots(cfg.num_envs)
        self._tasks = [""] * cfg.num_envs
        self._num_steps = np.zeros(cfg.num_envs, np.int64)
        found = interpreter(cfg.interpreter)
        self._images_CBHW3, memory = _shared_images(cfg)
        described = {
            "file": str(cfg.simulator_file),
            "class": cfg.simulator_class,
            "arguments": cfg.simulator_arguments,
            "is_batched": cfg.is_batched,
            "cameras": cfg.cameras,
            "action_repeat": cfg.action_repeat,
            "memory": memory,
            "shape": self._images_CBHW3.shape,
        }
        name = f"the process of {cfg.simulator}"
        try:
            self._child = ForeignChild(found, described, name, _TIMEOUT_S, cfg.variables, [memory])
        finally:
            os.close(memory)

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """Start episodes; see `VecEnv.reset`."""
        check = self.cfg.check_initial_state
        slots = self._slots.check_reset(initial_states, env_ids, check)
        self._slots.clear(slots)
        for slot, state in zip(slots, initial_states, strict=True):
            self._tasks[slot] = state.task
        plain = [(state.task, state.seed, state.index) for state in initial_states]
        answer = self._call("reset", slots, plain)
        observation = self._observation(slots, answer)
        self._num_steps[slots] = 0
        self._slots.begin(slots)
        return observation

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """Execute one chunk per slot; see `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        actions = np.asarray(actions, np.float32)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        horizons = np.array([self.cfg.horizon(self._tasks[slot]) for slot in slots])
        left = (horizons - self._num_steps[slots]).tolist()
        answer = self._call("step", slots, actions, left, self.cfg.draws_final)
        steps = self._array(answer, "steps", np.int64, len(slots))
        success = self._array(answer, "success", np.bool_, len(slots))
        self._num_steps[slots] += steps
        return self._slots.finish_step(
            slots,
            self._observation(slots, answer),
            self._array(answer, "reward", np.float32, len(slots)),
            success,
            ~success & (self._num_steps[slots] >= horizons),
            steps,
        )

    def expert_action(self, env_id: int) -> np.ndarray:
        """See `rrf.envs.vec_env.ExpertVecEnv`. Only simulators whose config sets `has_expert` have
        one.
        """
        if not self.cfg.has_expert:
            raise ValueError(f"{self.cfg.simulator} has no scripted experts")
        slots = self._slots.check([env_id])
        self._slots.check_running(slots)
        answer = {"action": self._call("expert_action", *slots)}
        return self._array(answer, "action", np.float32, self.action_dim)

    def close(self) -> None:
        """End the process. Calling it twice is allowed."""
        self._slots.close()
        self._child.close()

    def _call(self, method: str, *arguments) -> typing.Any:
        """The answer of the process. After a failure, this environment is closed."""
        try:
            self._child.send(method, *arguments)
            return self._child.result()
        except (ChildError, ValueError, KeyboardInterrupt):
            self.close()
            raise

    def _observation(self, slots: Sequence[int], answer: typing.Any) -> Observation:
        state = self._array(answer, "state", np.float32, len(slots), self.state_dim)
        self.cpu_s = dict(answer["cpu_s"])
        drawn = {
            camera: self._images_CBHW3[number, slots]  # a copy
            for number, camera in enumerate(self.cfg.cameras)
        }
        return Observation(drawn, state, [self.cfg.instruction(self._tasks[s]) for s in slots])

    def _array(self, answer: typing.Any, name: str, dtype: type, *shape: int) -> np.ndarray:
        """An array of an answer, checked."""
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, np.ndarray) or found.dtype != dtype or found.shape != shape:
            what = f"{found.dtype} {list(found.shape)}" if isinstance(found, np.ndarray) else found
            self.close()
            raise ChildError(
                f"{self._child.name} answered with {name} = {what}, expected "
                f"{np.dtype(dtype)} {list(shape)}"
            )
        return found


def _shared_images(cfg: ForeignVecEnvCfg) -> tuple[np.ndarray, int]:
    """uint8 [C, B, H, W, 3] in memory without a name, and its file descriptor.

    The array keeps the memory mapped; the descriptor is to be closed.
    """
    shape = (len(cfg.cameras), cfg.num_envs, cfg.image_size, cfg.image_size, 3)
    memory = os.memfd_create("images")
    size = int(np.prod(shape))
    if size == 0:
        return np.zeros(shape, np.uint8), memory
    os.ftruncate(memory, size)
    return np.frombuffer(mmap.mmap(memory, size), np.uint8).reshape(shape), memory
