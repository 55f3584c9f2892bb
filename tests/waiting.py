"""Waiting for what another process or thread does, however long a busy machine takes for it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def wait_for(
    condition: Callable[[], _T | None],
    timeout_s: float = 120,
    found: Callable[[], str] = lambda: "",
) -> _T:
    """What `condition` gives, once that is something; the deadline only ends a test that fails.

    Args:
        found: Called in the end, says what was there instead.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {found()}")
        time.sleep(0.05)
    return value


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_exited(native_id: int | None) -> bool:
    """Whether a thread of this process is gone for the kernel too; `join` returns a little
    earlier."""
    return not Path(f"/proc/self/task/{native_id}").exists()
