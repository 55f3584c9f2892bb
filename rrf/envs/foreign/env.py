"""A vector environment whose simulator runs in a foreign interpreter.

All slots of one environment are in one process there. `WorkerVecEnv` and the backends spread
environments over processes; then each of those has a foreign process of its own, which ends with
it. If the foreign process dies, the call raises a ChildError. Its messages are those of
`rrf_child.wire`; its interpreter finds its own packages, the folder `child_path` and nothing else
of ours.

Legend: C cameras, B slots of a call, H steps in an action chunk, D state dimension.
"""

import json
import mmap
import os
import tempfile
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.foreign.child_path.rrf_child.wire import Connection, MessageError
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.foreign.interpreters import Interpreter, foreign_environment, interpreter
from rrf.envs.process.child import Child, ChildError, ChildValueError
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions

_PATH = Path(__file__).parent / "child_path"
_MAIN = (
    "import sys; sys.path[0] = sys.argv[1]; from rrf_child.serve import serve; serve(*sys.argv[2:])"
)
_MAX_LOG_BYTES = 1 << 20
_TAIL_BYTES = 2000


class ForeignChild(Child):
    """The parent's end of a process in a foreign interpreter.

    What the process prints goes to a file without a name. Its end is a note of the error if the
    process dies.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        described: Mapping[str, typing.Any],
        name: str,
        timeout_s: float,
        variables: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ):
        """
        Args:
            interpreter: The Python, and where it runs.
            described: What to serve, as `rrf_child.serve.serve` takes it.
            name: The child's name in errors.
            timeout_s: How long an answer may take.
            variables: Environment variables besides those of this process and the interpreter's.
            pass_fds: File descriptors that the process inherits.
        """
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (open as long as the process runs)
        command = [str(interpreter.python), "-s", "-c", _MAIN, str(_PATH), json.dumps(described)]
        parent_end = self._start(
            name,
            timeout_s,
            command,
            pass_fds,
            env=foreign_environment() | interpreter.variables | dict(variables),
            cwd=interpreter.cwd,
            stdout=self._log,
            stderr=self._log,
        )
        self.connection = Connection(parent_end, timeout_s)

    def send(self, method: str, *arguments) -> None:
        if os.fstat(self._log.fileno()).st_size > _MAX_LOG_BYTES:
            self._log.truncate(0)
        super().send(method, *arguments)

    def receive(self):
        """See `Child.receive`. A child that sends anything but messages is killed."""
        try:
            return super().receive()
        except MessageError as error:
            code = self._process.poll()
            self.kill()
            what = f"ended (exit code {code})" if code is not None else "was killed"
            raise ChildError(
                f"{self.name} (pid {self.pid}) answered '{self._call}' with what is no message, "
                f"and {what}: {error}"
            ) from error

    def _ended_error(self) -> ChildError:
        error = super()._ended_error()
        self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - _TAIL_BYTES))
        if printed := self._log.read().decode(errors="replace").strip():
            error.add_note(f"The end of what it printed:\n{printed}")
        return error


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
        self._slots = Slots(cfg.num_envs, cfg.ignore_terminations)
        self._tasks = [""] * cfg.num_envs
        self._begun: dict[int, InitialState] = {}
        self._num_steps = np.zeros(cfg.num_envs, np.int64)  # of the task that is to be done
        self._stages = np.zeros(cfg.num_envs, np.int64)  # tasks of the episode that are done
        self._images_CBHW3, memory = _shared_images(cfg)
        described = {
            "file": str(cfg.simulator_file),
            "class": cfg.simulator_class,
            "arguments": cfg.simulator_arguments,
            "is_batched": cfg.is_batched,
            "has_stages": cfg.has_stages,
            "action_limit": cfg.action_limit,
            "cameras": cfg.cameras,
            "action_repeat": cfg.action_repeat,
            "memory": memory,
            "shape": self._images_CBHW3.shape,
        }
        name = f"the process of {cfg.simulator}"
        try:
            self._child = ForeignChild(
                interpreter(cfg.interpreter), described, name, _TIMEOUT_S, cfg.variables, [memory]
            )
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
            self._tasks[slot], self._begun[slot] = state.task, state
        plain = [(state.task, state.seed, state.index) for state in initial_states]
        answer = self._call("reset", slots, plain)
        self._stages[slots] = 0
        self._go_on(slots, answer)
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
        plays_on = self.cfg.ignore_terminations
        how = (self.cfg.draws_final, plays_on) if plays_on else (self.cfg.draws_final,)
        answer = self._call("step", slots, actions, left, *how)
        count = len(slots)
        steps = self._array(answer, "steps", np.int64, count)
        success = self._array(answer, "success", np.bool_, count)
        failed = np.zeros(count, bool)
        if "failed" in answer:  # of a simulator whose tasks can end without success
            failed = self._array(answer, "failed", np.bool_, count)
        self._num_steps[slots] += steps
        rewards = at_end = None
        if "rewards" in answer:
            rewards = self._array(answer, "rewards", np.float32, count, self.chunk_length)
        if plays_on:
            at_end = self._array(answer, "success_at_end", np.bool_, count)
        is_solved = success & (not plays_on)
        is_next = self._go_on(slots, answer) & ~success
        is_at_end = failed | (self._num_steps[slots] >= horizons)
        self._num_steps[np.asarray(slots)[is_next]] = 0
        return self._slots.finish_step(
            slots,
            self._observation(slots, answer),
            self._array(answer, "reward", np.float32, count),
            success,
            ~is_solved & ~is_next & is_at_end,
            steps,
            rewards,
            at_end,
        )

    def expert_action(self, env_id: int) -> np.ndarray:
        """See `rrf.envs.vec_env.ExpertVecEnv`. Only simulators whose config sets `has_expert` have
        one.
        """
        if not self.cfg.has_expert:
            raise ValueError(f"{self.cfg.simulator} has no scripted experts")
        slots = self._slots.check([env_id])
        self._slots.check_running(slots)
        answer = {"action": self._call("expert_action", *slots, may_refuse=True)}
        return self._array(answer, "action", np.float32, self.action_dim)

    def close(self) -> None:
        """End the process. Calling it twice is allowed."""
        self._slots.close()
        self._child.close()

    def _call(self, method: str, *arguments, may_refuse: bool = False) -> typing.Any:
        """The answer of the process. After a failure, this environment is closed.

        Args:
            may_refuse: Whether the method changes no episode, so that after its ValueError the
                episodes go on.
        """
        try:
            self._child.send(method, *arguments)
            return self._child.result()
        except (ChildError, ValueError, KeyboardInterrupt) as error:
            if not (may_refuse and isinstance(error, ChildValueError)):
                self.close()
            raise

    def _go_on(self, slots: Sequence[int], answer: typing.Any) -> np.ndarray:
        """Note which task each slot is at, and return which have done one, bool [B]."""
        if not self.cfg.has_stages:
            return np.zeros(len(slots), bool)
        stages = self._array(answer, "stage", np.int64, len(slots))
        has_done, tasks = stages != self._stages[slots], answer.get("task")
        if not isinstance(tasks, list) or len(tasks) != len(slots):
            self.close()
            raise ChildError(
                f"the process of {self.cfg.simulator} answered {tasks!r} for its tasks"
            )
        self._stages[slots] = stages
        for slot, task in zip(slots, tasks, strict=True):
            self._tasks[slot] = str(task)
        return has_done

    def _observation(self, slots: Sequence[int], answer: typing.Any) -> Observation:
        if self.state_dim is None:  # only the simulator knows it
            self.state_dim = int(answer["state"].shape[-1])
        state = self._array(answer, "state", np.float32, len(slots), self.state_dim)
        self.cpu_s = dict(answer["cpu_s"])
        drawn = {
            camera: self._images_CBHW3[number, slots]  # a copy
            for number, camera in enumerate(self.cfg.cameras)
        }
        words = [self.cfg.worded(self._tasks[slot], self._begun[slot]) for slot in slots]
        return Observation(drawn, state, words)

    def _array(self, answer: typing.Any, name: str, dtype: type, *shape: int) -> np.ndarray:
        """An array of an answer, checked."""
        array = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            what = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else array
            self.close()
            raise ChildError(
                f"{self._child.name} answered with {name} = {what}, expected "
                f"{np.dtype(dtype)} {list(shape)}"
            )
        return array


def _shared_images(cfg: ForeignVecEnvCfg) -> tuple[np.ndarray, int]:
    """uint8 [C, B, H, W, 3] in memory without a name, and its file descriptor.

    The array keeps the memory mapped; the descriptor is to be closed.
    """
    shape = (len(cfg.cameras), cfg.num_envs, *cfg.image_shape, 3)
    memory = os.memfd_create("images")
    size = int(np.prod(shape))
    if size == 0:
        return np.zeros(shape, np.uint8), memory
    os.ftruncate(memory, size)
    return np.frombuffer(mmap.mmap(memory, size), np.uint8).reshape(shape), memory
