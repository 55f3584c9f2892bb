"""Objects that answer in Ray actors as they do in child processes.

They exchange plain data, builtins and NumPy arrays. A call is packed here, because Ray would pack
each argument and array of it by Python code of its own; only the buffers of large arrays are left
to Ray's object store.
"""

import os
import pickle
import typing
from collections.abc import Sequence

import numpy as np
import ray
import ray.exceptions

from rrf.envs.failure import in_a_line
from rrf.envs.process.child import ChildError, Served, failure

_LARGE_BYTES = 1 << 20

Packed = tuple[bytes, list[np.ndarray]]


class _Actor(Served):
    def run(self, method: str, arguments: Packed) -> Packed:
        """See `Served.call`."""
        return packed(self.call(method, unpacked(arguments)))

    def pid(self) -> int:
        return os.getpid()


class RayChild:
    """The driver's end of an actor; has the methods of `rrf.envs.process.child.Child`."""

    def __init__(self, target: str, name: str, arguments: dict, timeout_s: float, options: dict):
        self.name, self._timeout_s = name, timeout_s
        served: typing.Any = ray.remote(_Actor)
        self._actor: typing.Any = served.options(**options).remote(target, arguments)
        self._method = "starting"
        self.answer: typing.Any = None

    @property
    def pid(self) -> int:
        return ray.get(self._actor.pid.remote())

    def send(self, method: str, *arguments) -> None:
        """See `Child.send`; that the actor is gone shows at `result`."""
        self.send_packed(method, packed(arguments))

    def send_packed(self, method: str, arguments: typing.Any) -> None:
        """The same with `packed` arguments, or with what `ray.put` made of them."""
        self._method = method
        self.answer = self._actor.run.remote(method, arguments)

    def result(self, timeout_s: float | None = None) -> typing.Any:
        """See `Child.result`; another time limit may be given."""
        method, limit = self._method, timeout_s or self._timeout_s
        try:
            answer: typing.Any = ray.get(self.answer, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise ChildError(
                f"{self.name} did not answer '{method}' within {limit:.0f} s and was killed"
            ) from None
        except ray.exceptions.RayError as error:
            raise ChildError(f"{self.name} died during '{method}': {in_a_line(error)}") from error
        kind, value = unpacked(answer, writable=True)
        if kind != "done":
            raise failure(self.name, method, kind, *value)
        return value

    def kill(self) -> None:
        """End the actor at once."""
        if ray.is_initialized():  # otherwise it ended with the cluster
            ray.kill(self._actor, no_restart=True)


def first_ready(answers: Sequence, timeout_s: float) -> list:
    """The answers that are there when the first is, at the latest after `timeout_s`."""
    if not answers:
        return []
    answers = list(answers)
    ready, pending = ray.wait(answers, num_returns=1, timeout=timeout_s, fetch_local=False)
    if not (ready and pending):
        return ready
    return ray.wait(answers, num_returns=len(answers), timeout=0, fetch_local=False)[0]


def packed(value: typing.Any) -> Packed:
    """Plain data as bytes, and the buffers of its large arrays."""
    large: list[np.ndarray] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _LARGE_BYTES:
            return True
        large.append(np.frombuffer(view, np.uint8))
        return False

    return pickle.dumps(value, protocol=5, buffer_callback=is_small), large


def unpacked(value: Packed, writable: bool = False) -> typing.Any:
    """The inverse of `packed`. Large arrays are in the object store, where nobody may write; with
    `writable` they are copied.
    """
    data, large = value
    return pickle.loads(data, buffers=map(bytearray, large) if writable else large)
