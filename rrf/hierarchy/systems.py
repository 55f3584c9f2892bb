"""The three systems, each as an object that a process can serve, and the parent's ends of them.

The seam between them are plain arrays: images, features, commands, states of joints.

Legend: T feature vectors of width W, H commands of a chunk, A numbers that System 1 sends, Q widths
of qpos, V of qvel.
"""

import typing

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.humanoid import body
from rrf.envs.humanoid.balancer import load_balancer
from rrf.envs.process.child import Child
from rrf.hierarchy.runtime import SystemDiedError
from rrf.runners.checkpoints.checkpoint import load_policy

_START_S = 120.0  # the longest that a system may take to load
_ANSWER_S = 1.0  # the longest that System 0 may take before it counts as gone


class System2:
    """Sees. Served in a process of its own, or used as it is."""

    def __init__(self, checkpoint: str):
        self._policy: typing.Any = load_policy(checkpoint)
        self._policy.eval()

    def ready(self) -> None:
        """Called first, to wait until it is loaded."""

    def see(self, images: dict[str, np.ndarray], state: np.ndarray, instruction: str) -> np.ndarray:
        """Features [1, T, W] of images, each uint8 [1, H, W, 3]."""
        return self._policy.see(Observation(images, state, [instruction]))


class System1:
    """Acts."""

    def __init__(self, checkpoint: str):
        self._policy: typing.Any = load_policy(checkpoint)
        self._policy.eval()

    def ready(self) -> None:
        """Called first, to wait until it is loaded."""

    def act(
        self,
        features: np.ndarray,
        age_s: float,
        images: dict[str, np.ndarray],
        state: np.ndarray,
        instruction: str,
    ) -> np.ndarray:
        """A chunk [H, A] for features [1, T, W] that are `age_s` old, and a state [1, D]."""
        observation = Observation(images, state, [instruction])
        ages_s = np.array([age_s])
        return self._policy.act(features, ages_s, observation, greedy=True).actions[0]


class System0:
    """Keeps one robot on its feet."""

    def __init__(self, checkpoint: str):
        self._balancer = load_balancer(checkpoint, body.spec().compile(), 1)
        self._row = np.zeros(1, np.int64)

    def ready(self) -> None:
        """Called first, to wait until it is loaded."""

    def reset(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """See `Balancer.reset`, for one robot: [Q], [V]."""
        self._balancer.reset(self._row, qpos[None], qvel[None])

    def targets(self, qpos: np.ndarray, qvel: np.ndarray, command_36: np.ndarray) -> np.ndarray:
        """See `Balancer.targets`, for one robot: [29]."""
        return self._balancer.targets(self._row, qpos[None], qvel[None], command_36[None])[0]


class _InProcess:
    """A system in a process of its own. It begins to load at once; `wait` until it has."""

    def __init__(self, number: int, checkpoint: str):
        target = f"rrf.hierarchy.systems:System{number}"
        self.name = f"System {number}"
        self.child = Child(target, self.name, {"checkpoint": checkpoint}, _START_S)
        self.child.send("ready")

    def wait(self) -> None:
        """Wait until it is loaded.

        Raises:
            ValueError: If the checkpoint cannot be read or does not fit.
            ChildError: If the process dies.
        """
        self.child.result()
        self.child.timeout_s = _ANSWER_S

    def close(self) -> None:
        """End the process."""
        self.child.close()


class Remote(_InProcess):
    """An `Asked` in a process of its own."""

    def __init__(self, number: int, checkpoint: str, method: str):
        super().__init__(number, checkpoint)
        self._method = method
        self._is_busy = False

    @property
    def is_busy(self) -> bool:
        """See `Asked.is_busy`."""
        return self._is_busy

    def ask(self, tick: int, *question: typing.Any) -> None:
        """See `Asked.ask`."""
        try:
            self.child.send(self._method, *plain(question))
        except ChildProcessError as error:
            raise SystemDiedError(str(error)) from error
        self._is_busy = True

    def answer(self, tick: int) -> typing.Any:
        """See `Asked.answer`."""
        if not self._is_busy:
            return None
        try:
            if not self.child.connection.poll(0):
                return None
            self._is_busy = False
            return self.child.result()
        except (ChildProcessError, ValueError, OSError) as error:
            raise SystemDiedError(str(error)) from error


class RemoteBalancer(_InProcess):
    """A `Balancer` of one robot in a process of its own, which the clock waits for."""

    def __init__(self, checkpoint: str):
        super().__init__(0, checkpoint)

    def reset(self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray) -> None:
        """See `Balancer.reset`."""
        self._call("reset", qpos_kq[0], qvel_kv[0])

    def targets(
        self, robots: np.ndarray, qpos_kq: np.ndarray, qvel_kv: np.ndarray, command_k36: np.ndarray
    ) -> np.ndarray:
        """See `Balancer.targets`."""
        return self._call("targets", qpos_kq[0], qvel_kv[0], command_k36[0])[None]

    def _call(self, method: str, *values: np.ndarray) -> typing.Any:
        try:
            self.child.send(method, *values)
            return self.child.result()
        except (ChildProcessError, ValueError) as error:
            raise SystemDiedError(str(error)) from error


def plain(question: tuple) -> list:
    """A question as plain data: an observation as its images, state and instruction."""
    values: list[typing.Any] = []
    for value in question:
        if isinstance(value, Observation):
            values += [dict(value.images), value.state, value.instruction[0]]
        else:
            values.append(value)
    return values
