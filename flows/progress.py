"""The output of running commands: some lines go to the flow run's log, or all lines to a listener.

`make demo` installs a listener to draw its progress bars. A worker does not, so its flow runs log
a line every `LOG_EVERY_S` seconds at most.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from prefect.logging import get_run_logger

Listener = Callable[[str, str], None]  # step, line

LOG_EVERY_S = 15.0
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Give `listener(step, line)` every line of every command that runs in this block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def reporter(step: str) -> Callable[[str], None]:
    """A function that takes each output line of the command for `step`."""
    listener = _listener.get()
    if listener:
        listener(step, "")
        return lambda line: listener(step, line)
    logger, last = get_run_logger(), -LOG_EVERY_S

    def log(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LOG_EVERY_S:
            last = time.monotonic()
            logger.info("%s: %s", step, line)

    return log
