"""Ctrl-C, answered at once: one line that says what happens now and how to go on.

Python runs the handler of a signal between two of its own instructions, which in the middle of an
import or of a step of torch may be seconds away. So a thread, which hears of every Ctrl-C through
the wakeup file descriptor, writes the line. The handler in the main thread then acts. A process
that should end and has not ended within seconds is ended by the thread.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

CODE = 128 + signal.SIGINT
_GRACE_S = {1: 4.0, 2: 1.0}
"""Seconds that a process has to end after the first Ctrl-C, if that ends it, and after the second.
"""
Says = Callable[[int], str]
"""The line that answers the n-th Ctrl-C, from 1."""

_listener: "_Listener | None" = None


@contextlib.contextmanager
def listening(says: Says = lambda count: "stopped by Ctrl-C") -> Iterator[None]:
    """Within the block, the first Ctrl-C is answered and raises KeyboardInterrupt, which ends the
    process with exit code 130.

    Nothing changes outside the main thread, where Ctrl-C is ignored, and within another such block.
    """
    global _listener
    is_main = threading.current_thread() is threading.main_thread()
    if _listener or not is_main or signal.getsignal(signal.SIGINT) is not _PYTHONS:
        yield
        return
    _listener = _Listener(says)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(CODE) from None
    finally:
        _listener.close()
        _listener = None


@contextlib.contextmanager
def answered(says: Says, saves: bool = False) -> Iterator[None]:
    """Within the block, `says` answers.

    Args:
        says: The line for each Ctrl-C.
        saves: Whether the work goes on after the first Ctrl-C, to save what there is. Only the
            second one then ends the process.
    """
    listener = _listener
    if listener is None:
        yield
        return
    before = listener.says, listener.last
    listener.says, listener.last = says, 2 if saves else 1
    try:
        yield
    finally:
        listener.says, listener.last = before


def count() -> int | None:
    """How many times Ctrl-C came; None if nobody listens."""
    if _listener is None:
        return None
    _listener.hear()
    return _listener.count


def _write(line: str) -> None:
    """Write to stderr; above a live display, if there is one."""
    with contextlib.suppress(RuntimeError):  # the main thread is writing there just now
        if sys.stderr is not sys.__stderr__:
            sys.stderr.write(f"{line}\n")
            return
    with contextlib.suppress(OSError):  # nobody reads it any more, e.g. a `tee` that has ended
        os.write(2, f"{line}\n".encode())


_PYTHONS = signal.default_int_handler


class _Listener:
    def __init__(self, says: Says):
        self.says, self.last = says, 1
        self.count = 0
        self._lock = threading.RLock()  # a handler may run while the main thread is in `hear`
        self._deadline: float | None = None
        self._is_over = False
        self._reading, writing = os.pipe()
        self._ends = self._reading, writing
        for end in self._ends:
            os.set_blocking(end, False)
        os.register_at_fork(after_in_child=self._leave)
        self._wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._handle)
        threading.Thread(target=self._listen, name="ctrl-c", daemon=True).start()

    def hear(self) -> None:
        """Count and answer what has come."""
        with self._lock:
            if self._is_over:
                return
            try:
                signals = os.read(self._reading, 64)
            except BlockingIOError:
                return
            for _ in range(signals.count(signal.SIGINT)):
                self.count += 1
                if line := self.says(self.count):
                    _write(line)
                if self.count >= self.last:
                    self._deadline = time.monotonic() + _GRACE_S[min(self.count, 2)]

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            if signal.getsignal(signal.SIGINT) == self._handle:
                signal.signal(signal.SIGINT, _PYTHONS)
            signal.set_wakeup_fd(self._wakeup)
            for end in self._ends:
                os.close(end)

    def _handle(self, _signum: int, _frame) -> None:
        self.hear()
        raise KeyboardInterrupt

    def _listen(self) -> None:
        while not self._is_over:
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                select.select([self._reading], [], [], 0.2)
            self.hear()
            deadline = self._deadline
            if deadline and not self._is_over and time.monotonic() > deadline:
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.flush()
                os._exit(CODE)

    def _leave(self) -> None:
        """In a forked child: Ctrl-C is none of its business, its parent decides what it means."""
        if not self._is_over:
            self._is_over = True
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGINT) == self._handle:
                signal.signal(signal.SIGINT, _PYTHONS)
