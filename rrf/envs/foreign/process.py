"""A child process in a foreign interpreter. It has the methods of `rrf.envs.process.child.Child`;
its messages are those of `rrf_child.wire`.

The interpreter finds its own packages, the folder `child_path` and nothing else of ours.
"""

import json
import os
import tempfile
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.envs.foreign.child_path.rrf_child.wire import Connection, MessageError
from rrf.envs.foreign.interpreters import Interpreter, without_ours
from rrf.envs.process.child import Child, ChildError

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
        ours = self._start(
            name,
            timeout_s,
            command,
            pass_fds,
            env=without_ours() | interpreter.variables | dict(variables),
            cwd=interpreter.cwd,
            stdout=self._log,
            stderr=self._log,
        )
        self.connection = Connection(ours, timeout_s)

    def send(self, method: str, *arguments) -> None:
        """See `Child.send`."""
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

    def _gone(self) -> ChildError:
        error = super()._gone()
        self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - _TAIL_BYTES))
        if printed := self._log.read().decode(errors="replace").strip():
            error.add_note(f"The end of what it printed:\n{printed}")
        return error
