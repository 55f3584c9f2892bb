"""Stopping on a signal: the step is finished and saved, then the process ends with 128 + signal."""

import signal
import threading

WATCHED = (signal.SIGTERM, signal.SIGINT)


class Interrupted(SystemExit):
    """Raised by a runner that a signal stopped, once it has saved; it sets the exit code."""

    def __init__(self, signum: int, where: str):
        super().__init__(128 + signum)
        self.signum = signum
        self.where = where

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}; {self.where}"


class StopRequestedError(Exception):
    """Raised in the middle of long work that was asked to stop; what it had begun is lost."""


class SignalWatch:
    """A context in which SIGTERM and SIGINT are noted in `received` instead of killing the process.

    A second SIGINT raises KeyboardInterrupt as usual. Outside the main thread, where Python
    delivers no signals, the context changes nothing.
    """

    def __init__(self):
        self.received: int | None = None
        self._previous = {}

    def __enter__(self) -> "SignalWatch":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, signum: int, _frame) -> None:
        if self.received == signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signum
