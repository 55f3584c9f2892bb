"""When a training saves out of turn, so that a kill never costs more than minutes of its work.

How many steps an interval should have depends on how long a step takes, which nobody knows before.
Saving changes no result, so when it happens may depend on the clock.
"""

import contextlib
import time
from collections.abc import Iterator

EVERY_S = 600.0
_SHARE = 20


class SaveClock:
    """Says when the last checkpoint is too old.

    That is after `EVERY_S` seconds, or later where saving would take more than 1 / 20 of the time.
    """

    def __init__(self):
        self._saved_at, self._took_s = time.monotonic(), 0.0

    def is_due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() - self._saved_at >= max(EVERY_S, _SHARE * self._took_s)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Wraps the saving of a checkpoint."""
        begin = time.monotonic()
        yield
        self._saved_at = time.monotonic()
        self._took_s = self._saved_at - begin
