"""Stop on a signal: finish and save what is at work, then exit with code 128 + signal number."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator

from rrf import ctrl_c

WATCHED = (signal.SIGTERM, signal.SIGINT)


class Interrupted(SystemExit):
    """Raised by a runner after a signal, when it has saved its progress. It sets the exit code."""

    def __init__(self, signum: int, where: str):
        super().__init__(128 + signum)
        self.signum = signum
        self.where = where

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}; {self.where}"


class StopRequestedError(Exception):
    """Raised within long work that is asked to stop. The unfinished work is lost."""


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a runner is, in the words of its answers to Ctrl-C."""

    unit: str
    """iteration, step or round."""
    done: int
    total: int
    finishes: bool = True
    """Whether it finishes the unit at work before it saves; otherwise it breaks it off."""

    def first(self, newest: int | None) -> str:
        """The answer to the first Ctrl-C; `newest` is the step of the newest checkpoint."""
        at = f"{self.unit} {min(self.done + 1, self.total)} of {self.total}"
        what = f"finishes {at}, saves it" if self.finishes else f"breaks off {at}, saves the rest"
        return f"Ctrl-C: {what} and stops; once more stops at once and loses {self._lost(newest)}"

    def second(self, newest: int | None) -> str:
        """The answer to the second one."""
        after = "starts anew" if newest is None else f"goes on from global_step_{newest}"
        return f"Ctrl-C again: stopped at once, {self._lost(newest)} lost; the same command {after}"

    def _lost(self, newest: int | None) -> str:
        first, last = (newest or 0) + 1, min(self.done + 1, self.total)
        if first > last:
            return "nothing that was trained"
        return f"{self.unit} {last}" if first == last else f"{self.unit}s {first} to {last}"


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Within the block, SIGTERM raises SystemExit, so that what is half done is put in order."""

    def end(signum: int, _frame) -> None:
        raise SystemExit(128 + signum)

    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)


class SignalWatch:
    """A context that records SIGTERM and SIGINT in `received` instead of ending the process.

    A second SIGINT raises KeyboardInterrupt as usual. SIGINT stays ignored where it is, as in a
    background job of a shell script. Outside the main thread, Python does not deliver signals, and
    the context does nothing.
    """

    def __init__(self, says: Callable[[int], str] | None = None):
        """
        Args:
            says: The line that answers the n-th Ctrl-C.
        """
        self.received: int | None = None
        self._previous = {}
        self._answers = ctrl_c.answered(says or (lambda count: ""), saves=True)

    def __enter__(self) -> "SignalWatch":
        self._answers.__enter__()  # first: a signal that is noted must not end the process
        if threading.current_thread() is threading.main_thread():
            heeded = [n for n in WATCHED if signal.getsignal(n) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._answers.__exit__(*error)

    def _note(self, signum: int, _frame) -> None:
        if signum == signal.SIGINT:
            count = ctrl_c.count() or 0  # two may come before Python runs this
            if count > 1 or self.received == signum:
                raise KeyboardInterrupt
        self.received = signum
