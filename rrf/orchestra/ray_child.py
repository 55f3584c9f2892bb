"""Objects that answer in Ray actors as they do in child processes.

Plain data goes through Ray's object store: builtins and NumPy arrays.
"""

import os
import typing
from collections.abc import Sequence

import numpy as np
import ray
import ray.exceptions

from rrf.envs.failure import in_a_line
from rrf.envs.process.child import ChildError, Served, failure


class _Actor(Served):
    def run(self, method: str, *values) -> tuple[str, typing.Any]:
        """See `Served.call`. Ray puts what `ray.put` stored in the place of such an argument."""
        return self.call(method, values)

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
        self._method = method
        self.answer = self._actor.run.remote(method, *arguments)

    def result(self, timeout_s: float | None = None) -> typing.Any:
        """See `Child.result`; another time limit may be given."""
        method, limit = self._method, timeout_s or self._timeout_s
        try:
            kind, value = ray.get(self.answer, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise ChildError(
                f"{self.name} did not answer '{method}' within {limit:.0f} s and was killed"
            ) from None
        except ray.exceptions.RayError as error:
            raise ChildError(f"{self.name} died during '{method}': {in_a_line(error)}") from error
        if kind != "done":
            raise failure(self.name, method, kind, *value)
        return writable(value)

    def kill(self) -> None:
        """End the actor at once."""
        if ray.is_initialized():  # otherwise it ended with the cluster
            ray.kill(self._actor, no_restart=True)


def first_ready(answers: Sequence, timeout_s: float) -> list:
    """The answers that are there when the first is, at the latest after `timeout_s`."""
    if not answers:
        return []
    answers = list(answers)
    ray.wait(answers, num_returns=1, timeout=timeout_s, fetch_local=False)
    return ray.wait(answers, num_returns=len(answers), timeout=0, fetch_local=False)[0]


def writable(value: typing.Any) -> typing.Any:
    """The same with its arrays copied; those in the object store are read-only."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: writable(each) for name, each in value.items()}
    return [writable(each) for each in value] if isinstance(value, list) else value
