"""Run a command that never outlives this process and can save its checkpoint when it is stopped.

The command gets its own session (one process group to signal) and a parent-death signal: if this
process is killed, the kernel sends SIGTERM to the command.

Two details of Linux decide how commands are started. The parent-death signal is tied to the parent
*thread*, so all commands are started by one thread that lives as long as the process. And running
Python between fork and exec in a process with many threads can deadlock, so the signal is set by a
small launcher (this file run as a script), which then replaces itself with the command.
"""

import ctypes
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_TAIL_LINES = 20
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class StoppedError(RuntimeError):
    """A command was stopped because `stop_when` said `why`."""

    def __init__(self, why: str):
        super().__init__(why)
        self.why = why


class CommandError(RuntimeError):
    """A command failed. A negative `exit_code` is a signal; `tail` holds the last lines."""

    def __init__(
        self,
        command: Sequence[str],
        exit_code: int,
        tail: Sequence[str],
        log: Path | None,
        why: str = "",
    ):
        how = why or (
            f"was killed by {signal.Signals(-exit_code).name}"
            if exit_code < 0
            else f"exit {exit_code}"
        )
        where = f"\nfull log: {log}" if log else ""
        last = "\n".join(tail) or "(no output)"
        super().__init__(f"`{' '.join(command)}` failed: {how}; last lines:\n{last}{where}")
        self.command = list(command)
        self.exit_code = exit_code
        self.tail = list(tail)
        self.log = log


def run(
    command: Sequence[str],
    log: str | Path | None = None,
    on_line: Callable[[str], None] | None = None,
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    grace_s: float = 60.0,
    stop_when: Callable[[], str] | None = None,
) -> int:
    """Run `command` to its end, passing on each line of its output (stdout and stderr together).

    Whatever interrupts the wait (Ctrl-C, a cancelled flow, an error in `on_line`, the timeout)
    stops the whole process group: first SIGTERM, then `grace_s` seconds to save its work, then
    SIGKILL.

    Args:
        command: Program and arguments; the program is looked up on PATH.
        log: File to which the output is appended as it arrives; its directory is created.
        on_line: Called in this thread with each line, without its line end; a carriage return ends
            a line too.
        cwd: Working directory of the command.
        env: Variables set on top of this process's environment.
        timeout_s: Watchdog: stop the command after this many seconds and raise TimeoutError.
        grace_s: Seconds between SIGTERM and SIGKILL.
        stop_when: Asked several times a second; the command is stopped when it says why.

    Returns:
        Always 0; any other exit code raises.

    Raises:
        CommandError: If the command fails, with its exit code and the last lines it wrote.
        TimeoutError: If the watchdog stopped it.
        StoppedError: If `stop_when` did.
        FileNotFoundError: If there is no such program.
    """
    process = start(command, cwd=cwd, env=env)
    output = _Output(process, log, on_line)
    try:
        output.follow(timeout_s, " ".join(map(str, command)), stop_when or (lambda: ""))
    finally:
        output.on_line = None
        stop(process, grace_s, meanwhile=output.read)
        output.drain()
        output.close()
    if process.returncode:
        raise CommandError(command, process.returncode, output.tail, output.log)
    return 0


def start(
    command: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start `command` in its own session with a parent-death signal; stderr goes to `stdout`.

    Raises:
        FileNotFoundError: If there is no such program.
    """
    command = [str(word) for word in command]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    if not _is_program(command[0], environment, cwd):
        raise FileNotFoundError(
            f"no program '{command[0]}'; is the virtual environment's bin/ on PATH?"
        )
    return _in_long_lived_thread(
        lambda: subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    )


def stop(
    process: subprocess.Popen[bytes],
    grace_s: float = 60.0,
    meanwhile: Callable[[float], object] = time.sleep,
) -> None:
    """End the process group of `process`: SIGTERM, then after `grace_s` seconds SIGKILL.

    Args:
        process: From `start`.
        grace_s: Seconds the process has to save its work.
        meanwhile: Called repeatedly while waiting, with the seconds it may take, e.g. to empty the
            pipe that the process fills.
    """
    if process.returncode is not None:
        return
    if not has_ended(process):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    try:
        while not has_ended(process) and time.monotonic() < deadline:
            meanwhile(0.05)
    finally:
        os.killpg(
            process.pid, signal.SIGKILL
        )  # not reaped yet, so its group id cannot belong to another process
        process.wait()


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether `process` has ended. Unlike `poll`, this does not reap it."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Output:
    """Passes on what a process writes: to the log as it arrives, and line by line to `on_line`."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: str | Path | None, on_line: Callable | None
    ):
        assert process.stdout
        self.log = Path(log) if log else None
        if self.log:
            self.log.parent.mkdir(parents=True, exist_ok=True)
        self.on_line = on_line
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._process = process
        self._pipe = process.stdout
        self._file = (self.log or Path(os.devnull)).open("ab")
        self._rest = b""
        self._is_open = True
        os.set_blocking(self._pipe.fileno(), False)

    def follow(self, timeout_s: float | None, name: str, stop_when: Callable[[], str]) -> None:
        """Read until the process ends, even if a grandchild keeps the pipe open."""
        deadline = time.monotonic() + (timeout_s or float("inf"))
        while not has_ended(self._process):
            self.read(_POLL_S)
            if why := stop_when():
                raise StoppedError(why)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"`{name}` ran longer than {timeout_s:g} s and was stopped; log: {self.log}"
                )
        self.drain()
        self._pass_on(self._rest)

    def drain(self) -> None:
        """Empty the pipe: the last lines and the end of the process may come between two reads."""
        while self.read(0):
            pass

    def read(self, wait_s: float) -> bool:
        """Wait up to `wait_s` seconds for output and pass it on. Returns whether there was any."""
        if not self._is_open:
            time.sleep(wait_s)
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            chunk = self._pipe.read(1 << 16) if selector.select(wait_s) else None
        if chunk is None:
            return False
        self._is_open = chunk != b""
        self._file.write(chunk)
        self._file.flush()
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + chunk)
        for line in lines:
            self._pass_on(line)
        return self._is_open

    def close(self) -> None:
        self._pipe.close()
        self._file.close()

    def _pass_on(self, line: bytes) -> None:
        if text := _ESCAPES.sub(b"", line).decode(errors="replace").rstrip():
            self.tail.append(text)
            if self.on_line:
                self.on_line(text)


def _is_program(name: str, env: Mapping[str, str], cwd: str | Path | None) -> bool:
    if "/" in name:
        return (Path(cwd or ".") / name).exists()
    return any((Path(folder) / name).exists() for folder in os.get_exec_path(dict(env)))


_requests: queue.SimpleQueue[tuple[Callable, queue.SimpleQueue]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_thread_lock = threading.Lock()


def _in_long_lived_thread(call: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Run `call()` in a thread that lives until this process ends."""
    global _thread
    with _thread_lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_serve, name="rrf-processes", daemon=True)
            _thread.start()
    answer: queue.SimpleQueue = queue.SimpleQueue()
    _requests.put((call, answer))
    result = answer.get()
    if isinstance(result, OSError):
        raise result
    return result


def _serve() -> None:
    while True:
        call, answer = _requests.get()
        try:
            answer.put(call())
        except OSError as error:
            answer.put(error)


def _launch(parent: int, command: Sequence[str]) -> None:
    """Replace this process with `command`; the kernel sends it SIGTERM when `parent` dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)  # the parent died before the signal was set
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    _launch(int(sys.argv[1]), sys.argv[2:])
