"""Stop on a signal: finish and save the step, then exit with code 128 + signal number."""

import signal
import threading

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


class SignalWatch:
    """A context that records SIGTERM and SIGINT in `received` instead of ending the process.

    A second SIGINT raises KeyboardInterrupt as usual. Outside the main thread, Python does not
    deliver signals, and the context does nothing.
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
