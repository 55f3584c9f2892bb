"""kill -9 at moments that a seed draws, and what must be true afterwards.

A case is work on a folder. Its moments are drawn over the whole time that the undisturbed work
takes, which is measured first. Then, for each seed: a fresh copy of the start, the work, SIGKILL to
its process, and a look at what readers find; the same once more, for the work that goes on; then
the work to its end, whose result must be that of the undisturbed one. A process that ends before
its moment was not killed: the copy is made again, and the moment comes earlier.

The work runs in forks of this process, which has imported everything: a kill during the import of
a package shows nothing.
"""

import abc
import contextlib
import dataclasses
import importlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import clock

KILLS = 2
"""For each seed; the second one hits the work that goes on after the first."""
_ATTEMPTS = 12
_DEADLINE_S = 600.0


class Harmed(abc.ABC):
    """Work to which something is done. Its methods but `trial` run in a fork, in `home`, the
    workspace."""

    name: str
    """Words, as the table has them."""

    @property
    def fault(self) -> str:
        """What happens, in words."""
        return self.name

    @abc.abstractmethod
    def trial(self, folder: Path) -> "Trial":
        """The work in an empty folder."""

    @abc.abstractmethod
    def prepare(self, home: Path) -> None:
        """Make what the work begins from."""


class Killed(Harmed):
    """Work that is killed."""

    @property
    def fault(self) -> str:
        return f"kill -9 of {self.name}"

    def trial(self, folder: Path) -> "Trial":
        return KillTrial(self, folder)

    @abc.abstractmethod
    def work(self, home: Path) -> None:
        """What is killed, started again and ended."""

    @abc.abstractmethod
    def look(self, home: Path) -> None:
        """What a reader does after a kill; raises AssertionError for something half."""

    @abc.abstractmethod
    def state(self, home: Path) -> typing.Any:
        """Plain data that must be the same however often the work was killed."""


@dataclasses.dataclass
class Survival:
    """What became of one seed."""

    case: str
    seed: int
    moments_s: list[float]
    """After the beginning of the work."""
    kills: int
    """Or other faults."""
    problem: str = ""
    """What was wrong afterwards; "" if nothing was."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    usual_s: float = 0.0
    """Seconds that the undisturbed work takes."""


class Trial(abc.ABC):
    """A case in a folder.

    Args:
        case: What is harmed.
        folder: An empty folder for it.
    """

    def __init__(self, case: Harmed, folder: Path):
        self.home, self._start = folder / "home", folder / "start"
        self.home.mkdir(parents=True, exist_ok=True)
        self._in_fork(lambda: case.prepare(self.home))
        shutil.copytree(self.home, self._start, symlinks=True)
        self.name, self.fault = case.name, case.fault
        self.usual_s = self._undisturbed_s()

    def survive(self, seed: int) -> Survival:
        """Do the harm of a seed to the work, and see."""
        rng, began, cpu_s = random.Random(f"{self.name} {seed}"), time.monotonic(), self._cpu_s()
        survival = Survival(self.fault, seed, [], 0, usual_s=self.usual_s)
        try:
            self._harm(rng, survival)
        except AssertionError as error:
            survival.problem = str(error) or "an assertion without words"
        survival.wall_s, survival.cpu_s = time.monotonic() - began, self._cpu_s() - cpu_s
        return survival

    def _cpu_s(self) -> float:
        """CPU-seconds so far, of this process and all that it has waited for."""
        return clock.seconds()[1]

    def close(self) -> None:  # noqa: B027
        """Let go of what is no file in the folder."""

    @abc.abstractmethod
    def _undisturbed_s(self) -> float:
        """Do the work undisturbed, and import what it needs; returns the seconds that it takes."""

    @abc.abstractmethod
    def _harm(self, rng: random.Random, survival: Survival) -> None:
        """Do harm to a fresh copy of the start. Raises AssertionError for what is wrong then."""

    def _again(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._start, self.home, symlinks=True)

    def _begun(self, work: Callable[[], typing.Any]) -> int:
        """The id of a fork that works."""
        return _fork(work, self.home, None)

    def _in_fork(self, work: Callable[[], typing.Any]) -> typing.Any:
        """What `work` gives, as JSON. Raises AssertionError if it fails."""
        reader, writer = os.pipe()
        pid = _fork(work, self.home, writer)
        os.close(writer)
        deadline = time.monotonic() + _DEADLINE_S
        with contextlib.suppress(ChildProcessError), os.fdopen(reader) as file:
            text = _read(file, pid, deadline)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0, self._said() or f"ended with {code}"
        return json.loads(text)

    def _said(self) -> str:
        file = self.home.with_name("error.txt")
        return file.read_text().strip() if file.exists() else ""


class KillTrial(Trial):
    """Work that is killed, goes on, is killed again, and must end as if undisturbed."""

    def __init__(self, case: Killed, folder: Path):
        self.case = case
        super().__init__(case, folder)
        self.undisturbed = self._in_fork(lambda: case.state(self.home))

    def _undisturbed_s(self) -> float:
        work = self.case.work
        import_all(self._in_fork(lambda: (work(self.home), [*sys.modules])[1]))
        self._again()
        began = time.monotonic()
        self._in_fork(lambda: work(self.home))
        return time.monotonic() - began

    def _harm(self, rng: random.Random, survival: Survival) -> None:
        self._disturb(rng, survival)
        self._in_fork(lambda: self.case.work(self.home))
        state = self._in_fork(lambda: self.case.state(self.home))
        different = _difference(self.undisturbed, state)
        assert state == self.undisturbed, f"another result: {different}"

    def _disturb(self, rng: random.Random, survival: Survival) -> None:
        longest_s = self.usual_s
        for _ in range(_ATTEMPTS):
            self._again()
            after_s = rng.random() * longest_s
            if self._is_killed(after_s):
                break
            longest_s *= 0.8
        else:
            raise AssertionError("the work was always over before it could be killed")
        survival.moments_s.append(round(after_s, 3))
        survival.kills = 1
        self._in_fork(lambda: self.case.look(self.home))
        for _ in range(1, KILLS):
            after_s = rng.random() * longest_s
            if not self._is_killed(after_s):  # there was less left to do
                return
            survival.moments_s.append(round(after_s, 3))
            survival.kills += 1
            self._in_fork(lambda: self.case.look(self.home))

    def _is_killed(self, after_s: float) -> bool:
        """Whether the work was killed; False if it had ended."""
        pid = self._begun(lambda: self.case.work(self.home))
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _end_group(pid)
        assert code in (0, -signal.SIGKILL), f"the work failed with {code}: {self._said()}"
        return code == -signal.SIGKILL


def import_all(names: Iterable[str]) -> None:
    """Import what a fork has imported, so that the next ones need not."""
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(ImportError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def _fork(work: Callable[[], typing.Any], home: Path, writer: int | None) -> int:
    """Start `work` in a process group of its own; what goes wrong is in error.txt beside `home`."""
    sys.stdout.flush()
    sys.stderr.flush()
    home.with_name("error.txt").unlink(missing_ok=True)
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        with home.with_name("output.txt").open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.environ["RRF_HOME"] = str(home)
        os.chdir(home)
        value = work()
        if writer is not None:
            with os.fdopen(writer, "w") as file:
                file.write(json.dumps(value))
        code = 0
    except BaseException as error:
        shown = traceback.format_exc()
        if isinstance(error, AssertionError | ValueError | OSError):
            shown = f"{type(error).__name__}: {error}\n{shown}"
        home.with_name("error.txt").write_text(shown)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read(file: typing.TextIO, pid: int, deadline: float) -> str:
    """All that a fork writes; it is killed at the deadline."""
    watchdog = threading.Timer(max(deadline - time.monotonic(), 0.0), os.kill, (pid, 9))
    watchdog.daemon = True
    watchdog.start()
    try:
        return file.read()
    finally:
        watchdog.cancel()


def _end_group(pid: int) -> None:
    """End what a killed process has left behind, as the next test would meet it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _difference(expected: typing.Any, found: typing.Any) -> str:
    """Where two plain values differ first."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}):
            if expected.get(key) != found.get(key):
                return f"{key}: {_difference(expected.get(key), found.get(key))}"
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, pair in enumerate(zip(expected, found, strict=True)):
            if pair[0] != pair[1]:
                return f"[{place}] {_difference(*pair)}"
    return f"{found!r:.300} instead of {expected!r:.300}"
