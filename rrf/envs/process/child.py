"""A child process that serves the methods of one object. Environment workers and demonstration
recorders use it.

The processes exchange plain data over a socket pair: builtins and NumPy arrays, no objects of ours.
The child is a fresh interpreter, so it inherits neither the parent's main module nor its threads,
CUDA contexts or OpenGL contexts. It ends when the parent closes the connection or dies. If the
parent's main thread started it, it also dies at once with the parent, even in the middle of a call
(PR_SET_PDEATHSIG, which Linux ties to the starting thread).
"""

import ctypes
import functools
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from rrf.config import locate
from rrf.envs.failure import in_a_line

_PR_SET_PDEATHSIG = 1
_CLOSE_TIMEOUT_S = 5.0
_OBJECTS = 50_000
"""New objects between two collections of garbage during the first call, which imports simulators:
Python's 700 would cost a fifth of its time."""
_MAIN = "import sys; from rrf.envs.process.child import serve; serve(*sys.argv[1:])"


class ChildError(ChildProcessError):
    """A child process died, hung or failed. The message says which one, and what it was doing.

    If it failed, the child's traceback is a note of the error.
    """


class ChildValueError(ValueError):
    """A method of the child raised a ValueError. The message is the same.

    The child's traceback is a note of the error.
    """


class Child:
    """The parent's end of a child process."""

    def __init__(self, target: str, name: str, arguments: dict[str, typing.Any], timeout_s: float):
        """Start the child process.

        Args:
            target: "module:Class" of the object to serve. The child makes it from `arguments`.
            name: The child's name in errors, for example "worker 2 of 4".
            arguments: Keyword arguments of the class, as JSON data.
            timeout_s: How long an answer may take.
        """
        path = os.pathsep.join(filter(None, sys.path))  # the child finds the modules that we find
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _MAIN, target, json.dumps(arguments)]
        parent_end = self._start(name, timeout_s, command, env=environment)
        self.connection = Connection(parent_end.detach())

    def _start(
        self,
        name: str,
        timeout_s: float,
        command: Sequence[str],
        pass_fds: Sequence[int] = (),
        **how: typing.Any,
    ) -> socket.socket:
        """Start the process and return our end of the connection.

        The command is completed by the file descriptor of the other end, and by the process to die
        with, or 0.
        """
        self.name = name
        self.timeout_s = timeout_s
        self._call = "starting"
        parent_end, child_end = socket.socketpair()
        is_bound = threading.current_thread() is threading.main_thread()
        with child_end:
            self._process = subprocess.Popen(
                [*command, str(child_end.fileno()), str(os.getpid()) if is_bound else "0"],
                pass_fds=[child_end.fileno(), *pass_fds],
                stdin=subprocess.DEVNULL,
                **how,
            )
        return parent_end

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, method: str, *arguments) -> None:
        """Start a call. Take its answer with `receive` before the next call.

        Raises:
            ChildError: If the child is gone.
        """
        self._call = method
        try:
            self.connection.send((method, arguments))
        except OSError as error:
            raise self._ended_error() from error

    def receive(self):
        """The next message of the running call: ("progress", value) any number of times, then
        ("done", value).

        Raises:
            ChildValueError: If the method raised a ValueError; the message is the same.
            ChildError: For any other failure, a dead child, or no message within the time limit.
                After a missed time limit the child is killed.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            while not self.connection.poll(min(1.0, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    self.kill()
                    raise ChildError(
                        f"{self.name} did not answer '{self._call}' within "
                        f"{self.timeout_s:.0f} s and was killed"
                    )
            kind, value = self.connection.recv()
        except ChildError:
            raise
        except (EOFError, OSError) as error:
            raise self._ended_error() from error
        if kind in ("invalid", "failed"):
            raise failure(self.name, self._call, kind, *value)
        return kind, value

    def result(self):
        """The value of the running call, skipping progress. Raises as `receive` does."""
        while True:
            kind, value = self.receive()
            if kind == "done":
                return value

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """End the child: close the connection, and kill it if it does not end. Calling it twice is
        allowed.
        """
        self.connection.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the child at once."""
        self._process.kill()
        self._process.wait()

    def _ended_error(self) -> ChildError:
        try:
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = "none (killed)"
        return ChildError(
            f"{self.name} (pid {self.pid}) died during '{self._call}', exit code {code}"
        )


class Served:
    """Answers calls of the methods of one object, which is made at the first call."""

    def __init__(self, target: str, arguments: dict[str, typing.Any]):
        """See `Child`."""
        self._target, self._arguments, self._served = target, arguments, None

    def call(
        self, method: str, values: Sequence, exhaust: Callable[[typing.Iterator], typing.Any] = list
    ) -> tuple[str, typing.Any]:
        """("done", answer), or ("invalid" or "failed", (message, traceback)).

        Args:
            method: A method of the object.
            values: Its arguments.
            exhaust: Makes an answer of a generator.
        """
        try:
            if self._served is None:
                self._served = locate(self._target)(**self._arguments)
            answer = getattr(self._served, method)(*values)
            return "done", exhaust(answer) if inspect.isgenerator(answer) else answer
        except ValueError as error:
            return "invalid", (str(error), traceback.format_exc())
        except Exception as error:  # the boundary of the process: the parent must hear of all
            return "failed", (in_a_line(error), traceback.format_exc())


def failure(name: str, method: str, kind: str, message: str, trace: str) -> Exception:
    """The ChildValueError or ChildError for what `Served.call` answered."""
    error = (
        ChildValueError(message)
        if kind == "invalid"
        else ChildError(f"{name} failed in '{method}': {message}")
    )
    error.add_note(f"In the child process:\n{trace}")
    return error


def close_all(children: typing.Iterable[Child], timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
    """End several children within one time limit."""
    children = list(children)
    for child in children:
        child.connection.close()
    deadline = time.monotonic() + timeout_s
    for child in children:
        child.close(max(0.0, deadline - time.monotonic()))


def serve(target: str, arguments: str, fd: str, parent_pid: str) -> None:
    """The child's main function: answer calls until the connection closes."""
    if parent_pid != "0":
        _die_with_parent(int(parent_pid))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole process group; the parent decides
    connection = Connection(int(fd))
    served = Served(target, json.loads(arguments))
    usual = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *usual[1:])
    while True:
        try:
            method, values = connection.recv()
            message = served.call(method, values, functools.partial(_send_progress, connection))
            connection.send(message)
        except (EOFError, OSError):
            gc.freeze()  # or the end of Python would look through all of it once more
            return
        gc.set_threshold(*usual)


def _send_progress(connection: Connection, steps: typing.Iterator):
    """Send what a generator yields as progress messages. Its return value is the answer."""
    while True:
        try:
            connection.send(("progress", next(steps)))
        except StopIteration as stop:
            return stop.value


def _die_with_parent(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent died before the line above
        os._exit(1)
