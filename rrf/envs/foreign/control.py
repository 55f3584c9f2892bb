"""Environments of states that step together in a foreign interpreter.

The simulator's class is a `rrf_child.batch.Batch`. It lives in one process: simulators that step
thousands of environments at once allow one world per process.

A process that dies or hangs in a step ends this environment, unless `replaces_process` is set, as
training does. Then another process begins new episodes in its place. The step that lost the old
one returns the observations from before it as those in which all episodes were cut off.

Legend: N environments, A width of an action, K ended episodes, D width of a group.
"""

import typing
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tensordict import TensorDict

from rrf.data.dataset.sampling import mixed_seed
from rrf.envs.control_env import EnvState, Interface, OfRslRl, check_actions
from rrf.envs.foreign.configs import ForeignControlEnvCfg
from rrf.envs.foreign.env import ForeignChild
from rrf.envs.foreign.interpreters import interpreter
from rrf.envs.process.child import ChildError

_FIRST_TIMEOUT_S = 1800.0  # the first call imports the simulator, which may compile
_MAX_REPLACED = 3  # a simulator that dies more often does so for a reason
_MAX_SEED = 2**31 - 1


def build(
    cfg: ForeignControlEnvCfg, seed: int = 0, device: torch.device | str = "cpu"
) -> "ForeignControlEnv":
    """The environments that `cfg` describes, in a process of their own.

    Raises:
        ValueError: If the interpreter is not set up, or the simulator does not accept the config.
        ChildError: If the process dies.
    """
    process = _Process(cfg, seed, str(device))
    kind = ForeignVelocityEnv if process.description["takes_commands"] else ForeignControlEnv
    return kind(cfg, process, seed, device)


class _Process:
    """A process of the simulator, and what it says about its environments."""

    def __init__(self, cfg: ForeignControlEnvCfg, seed: int, device: str):
        how = {"num_envs": cfg.num_envs, "seed": seed % _MAX_SEED, "device": device}
        described = {
            "file": str(cfg.simulator_file),
            "class": cfg.simulator_class,
            "arguments": cfg.simulator_arguments | how,
        }
        name = f"the process of {cfg.simulator}"
        self.child = ForeignChild(
            interpreter(cfg.interpreter), described, name, _FIRST_TIMEOUT_S, cfg.variables
        )
        try:
            self.description = self.call("describe")
            self.groups = {name: dict(terms) for name, terms in self.description["groups"].items()}
        except BaseException:
            self.child.close()
            raise
        self.child.timeout_s = cfg.timeout_s

    def call(self, method: str, *arguments) -> typing.Any:
        self.child.send(method, *arguments)
        return self.child.result()


class ForeignControlEnv(OfRslRl):
    """See `rrf.envs.control_env.ControlEnv`."""

    def __init__(
        self,
        cfg: ForeignControlEnvCfg,
        process: _Process,
        seed: int,
        device: torch.device | str,
    ):
        """Begin the first episodes.

        Args:
            process: A process of the simulator, from now on this environment's own.
        """
        self.cfg, self.num_envs, self.device = cfg, cfg.num_envs, torch.device(device)
        self.replaces_process = False
        """Whether a process that dies is replaced. Its episodes are then lost."""
        self.num_replaced = 0
        self._process, self._seed, self._is_closed = process, seed, False
        said = process.description
        self.num_actions: int = said["num_actions"]
        self.max_episode_length: int = said["max_episode_length"]
        self.has_seeds: bool = said["has_seeds"]
        self.interface = Interface(
            observation_dims={name: sum(terms.values()) for name, terms in process.groups.items()},
            num_actions=self.num_actions,
            num_choices=said["num_choices"],
            step_dt=said["step_s"],
            task=cfg.task,
            observation_terms=process.groups,
            robot=said["robot"],
        )
        self._progress = 0
        self.reset()

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Steps since the episodes began, int64 [N]; may be set."""
        return self._lengths

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self._lengths = value.to(self.device, torch.int64, copy=True)
        self._are_lengths_set = True

    def get_observations(self) -> TensorDict:
        """The current observations, TensorDict [N]."""
        return self._observations

    def reset(self) -> tuple[TensorDict, dict]:
        """Start a new episode in every environment. The random generators continue."""
        self._observations = self._group(self._call("reset", list(range(self.num_envs)), None))
        self.episode_length_buf = torch.zeros(self.num_envs)
        return self._observations, {}

    def reset_envs(
        self,
        env_ids: Sequence[int],
        seeds: Sequence[int | None] | None = None,
        options: dict[str, typing.Any] | None = None,
    ) -> TensorDict:
        """See `rrf.envs.control_env.ResetsSome`."""
        envs = [int(env) for env in env_ids]
        given = [seed for seed in seeds or [] if seed is not None]
        if given and len(given) != len(envs):
            raise ValueError(f"{len(given)} seeds for {len(envs)} environments")
        small = [seed % _MAX_SEED for seed in given]
        self._observations = self._group(self._call("reset", envs, small or None))
        lengths = self._lengths.clone()
        lengths[envs] = 0
        self.episode_length_buf = lengths
        return self._observations

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        check_actions(actions, self.num_envs, self.num_actions)
        lengths = self._lengths.cpu().numpy() if self._are_lengths_set else None
        plain = actions.detach().to("cpu", torch.float32).numpy()
        try:
            answer = self._call("step", plain, lengths)
        except ChildError as error:
            return self._replaced(error)
        rewards = self._array(answer, "rewards", np.float32)
        terminated = self._array(answer, "terminated", np.bool_)
        truncated = self._array(answer, "truncated", np.bool_)
        dones = terminated | truncated
        self._observations = self._group(answer["observations"])
        self._lengths = torch.where(dones, 0, self._lengths + 1)
        self._are_lengths_set, self._progress = False, self._progress + 1
        num_ended = int(dones.sum())
        final = self._group(answer["final"], num_ended) if num_ended else None
        self._measure(answer)
        extras = {
            "time_outs": truncated & ~terminated,
            "final_obs": final,
            "log": dict(answer["log"]),
        }
        return self._observations, rewards, dones, extras

    def state(self) -> EnvState | None:
        """Always None: the state of the simulator's process is not read."""
        return None

    def load_state(self, state: EnvState) -> None:
        """Not supported.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"{self.cfg.simulator} cannot continue from a state")

    def set_progress(self, num_steps: int, seed: int) -> None:
        """Continue as after `num_steps` steps, with random numbers of `seed`."""
        self._progress, self._seed = num_steps, seed
        self._call("set_progress", num_steps, seed % _MAX_SEED)

    def pictures(self, env_ids: Sequence[int], image_size: tuple[int, int]) -> np.ndarray:
        """Some environments as they are now, uint8 [K, H, W, 3].

        Raises:
            ValueError: If the simulator was made without a camera, or has none.
        """
        picture = self._call("pictures", [int(env) for env in env_ids], *image_size)
        shape = (len(env_ids), *image_size, 3)
        if not isinstance(picture, np.ndarray) or (picture.dtype, picture.shape) != ("u1", shape):
            raise self._wrong("pictures", picture, f"uint8 {list(shape)}")
        return picture

    def close(self) -> None:
        """End the process. Calling it twice is allowed."""
        self._is_closed = True
        self._process.child.close()

    def _call(self, method: str, *arguments) -> typing.Any:
        """The answer of the process. After a failure this environment is closed, except where the
        simulator refuses an argument.
        """
        if self._is_closed:
            raise ValueError("this environment is closed; build a new one")
        try:
            return self._process.call(method, *arguments)
        except (ChildError, KeyboardInterrupt):
            self.close()
            raise

    def _replaced(self, error: ChildError):
        """The result of a step whose process was lost."""
        if not self.replaces_process or self.num_replaced >= _MAX_REPLACED:
            raise error
        self.num_replaced += 1
        number = self.num_replaced
        warnings.warn(
            f"{error}; another one begins new episodes (replacement {number} of {_MAX_REPLACED})",
            stacklevel=4,
        )
        before = self._observations
        seed = mixed_seed(self._seed, self._progress, number)
        self._process = _Process(self.cfg, seed, str(self.device))
        self._is_closed = False
        self.set_progress(self._progress, seed)
        self.reset()
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        extras = {
            "time_outs": everywhere,
            "final_obs": before,
            "log": {"env/processes_replaced": float(number)},
        }
        rewards = torch.zeros(self.num_envs, device=self.device)
        return self._observations, rewards, everywhere.clone(), extras

    def _measure(self, answer: Mapping[str, typing.Any]) -> None:
        """Keep what a step's answer has besides."""

    def _group(self, arrays: typing.Any, num_rows: int | None = None) -> TensorDict:
        """Observations of an answer, checked."""
        rows = self.num_envs if num_rows is None else num_rows
        groups = {
            name: self._array(arrays, name, np.float32, rows, width)
            for name, width in self.interface.observation_dims.items()
        }
        return TensorDict(groups, [rows])

    def _array(self, answer: typing.Any, name: str, dtype: type, *shape: int) -> torch.Tensor:
        """An array of an answer, checked."""
        shape = shape or (self.num_envs,)
        array = answer.get(name) if isinstance(answer, Mapping) else None
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            raise self._wrong(name, array, f"{np.dtype(dtype)} {list(shape)}")
        return torch.from_numpy(array).to(self.device)

    def _wrong(self, name: str, value: typing.Any, expected: str) -> ChildError:
        self.close()
        is_array = isinstance(value, np.ndarray)
        what = f"{value.dtype} {list(value.shape)}" if is_array else type(value).__name__
        return ChildError(
            f"{self._process.child.name} answered with {name} = {what}, expected {expected}"
        )


class ForeignVelocityEnv(ForeignControlEnv):
    """Environments of robots that follow commanded velocities; see
    `rrf.evaluation.control.metrics.VelocityEnv`.
    """

    command: torch.Tensor | None = None
    """The commands that were set, float32 [N, 3]; None for those that the simulator draws."""

    def set_command(self, command: torch.Tensor) -> None:
        """Use command [N, 3] (forward m/s, left m/s, turn left rad/s) from now on, also after
        resets."""
        self.command = command.to(self.device, torch.float32)
        self._observations = self._group(self._call("command", self.command.cpu().numpy()))

    def body_velocity(self) -> torch.Tensor:
        """The velocities of the robots after the last step, [N, 3] in the same units, in the body
        frame."""
        return self._velocity

    def power(self) -> torch.Tensor:
        """Mechanical power during the last step, W, [N]."""
        return self._power

    def _measure(self, answer: Mapping[str, typing.Any]) -> None:
        self._velocity = self._array(answer, "velocity", np.float32, self.num_envs, 3)
        self._power = self._array(answer, "power", np.float32)
