"""What a running command says: now and then to the log of its flow run, in full to whoever listens.

`make demo` listens to draw its progress bars; a worker does not, and its flow runs log one line
now and then.
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
    """What to do with each line of the command that does `step`."""
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
