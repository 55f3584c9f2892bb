"""What `rrf services up` records about each service: pid, start time, port, mark and node.

The record is `.rrf/pids/NAME.json`. Pid and start time name the process that was started, so a pid
that the system has reused for another process is never signalled. The mark is a random word in the
environment of that process and of all its children. It still finds the children if the process
itself was killed, and no foreign process has it. The node tells records of another machine, which
may share the file system, from those of processes that have ended.
"""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from rrf import atomic, workspace

MARK = "RRF_SERVICE"
PORTS = {
    "prefect": ("RRF_PREFECT_PORT", 4200),
    "mlflow": ("RRF_MLFLOW_PORT", 5000),
    "metrics": ("RRF_METRICS_PORT", 9464),
}
"""Server -> the variable that asks for its port, and its usual port."""
_POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Record:
    """A service that was started."""

    pid: int
    """0 if `up` ended before it knew the pid; the mark finds the processes."""
    born: int | None
    port: int = 0
    mark: str = ""
    node: str = ""
    """The name of the machine and its boot. Empty if an older rrf wrote the record."""

    @property
    def other_node(self) -> str | None:
        """The machine that started the service, if it is another one than this."""
        if not self.node:
            return None
        # A machine that got another name has not booted, and one that booted has its name.
        (name, boot), (own_name, own_boot) = self.node.split(), _node().split()
        return None if name == own_name or boot == own_boot else name

    @property
    def is_running(self) -> bool:
        """Whether the process that was started still runs."""
        return self.born is not None and _born(self.pid) == self.born

    def processes(self) -> list[int]:
        """The running processes of the service: the one that was started, and its children."""
        marked = [pid for pid in _own_pids() if self.mark and _mark(pid) == self.mark]
        return sorted({*marked, *([self.pid] if self.is_running else [])})

    def end(self, timeout_s: float) -> None:
        """Send SIGTERM to the service, and after `timeout_s` SIGKILL to what is still running.

        A child gets its SIGTERM when its parent has gone, so that a parent can end it first.
        """
        signalled: set[int] = set()
        deadline = time.monotonic() + timeout_s
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                if pid not in signalled and _parent(pid) not in left:
                    signalled.add(pid)
                    self._send(pid, signal.SIGTERM)
            time.sleep(_POLL_S)
            if self.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.pid, os.WNOHANG)
        for pid in left:
            self._send(pid, signal.SIGKILL)

    def _send(self, pid: int, what: signal.Signals) -> None:
        """Send a signal to a process of the service, and never to a later one with its pid."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if pid in self.processes():
                signal.pidfd_send_signal(handle, what)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def path(name: str) -> Path:
    """The file with the record of a service."""
    return workspace.state() / "pids" / f"{name}.json"


def read(name: str) -> Record | None:
    """The record of a service; None if there is none that can be read."""
    try:
        return Record(**json.loads(path(name).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(name: str, pid: int, port: int, mark: str) -> None:
    """Record that the process `pid` was started as service `name`, or is being started (0)."""
    record = Record(pid, _born(pid), port, mark, _node())
    atomic.write_json(path(name), dataclasses.asdict(record))


def require_this_node(names: Iterable[str]) -> None:
    """Raise ValueError if one of these services was started on another machine."""
    for name in names:
        if (record := read(name)) and (node := record.other_node):
            raise ValueError(
                f"'{name}' of this workspace was started on {node}, which shares this folder; run "
                f"`rrf services down` there. If that machine is gone: rm {path(name)}"
            )


def port(name: str) -> int:
    """The port of a server of this workspace.

    It is the recorded one while the server runs. Otherwise it is the one that the environment asks
    for, the recorded one of a server that was killed, or the usual one.

    Raises:
        ValueError: If the environment asks for something that is not a port.
    """
    asked, record = asked_port(name), read(name)
    if record and record.port and (asked is None or record.is_running):
        return record.port
    return asked or PORTS[name][1]


def asked_port(name: str) -> int | None:
    """The port that the environment asks for; None if it asks for none. Raises like `port`."""
    variable = PORTS[name][0]
    text = os.environ.get(variable)
    if not text:
        return None
    if not (text.isdigit() and 0 < int(text) < 65536):
        raise ValueError(f"{variable}={text!r} is not a port number (1 to 65535)")
    return int(text)


def _node() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot}"


def _born(pid: int) -> int | None:
    """Start time of a running process in clock ticks since boot; with the pid it is unique."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [] if fields[0] == "Z" else fields


def _own_pids() -> list[int]:
    """The processes of this user."""
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    pids = []
    for name in names:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{name}").stat().st_uid == os.getuid() and _stat(int(name)):
                pids.append(int(name))
    return pids


def _mark(pid: int) -> str:
    """The mark in the environment that a process was started with; empty if there is none."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    prefix = f"{MARK}=".encode()
    return next(
        (word.removeprefix(prefix).decode() for word in words if word.startswith(prefix)), ""
    )
