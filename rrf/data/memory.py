"""How much memory is free, and whether an array that is about to be read fits into it.

Linux hands out more memory than there is, and then kills a process that uses it. So the size of an
array is compared with what is free before the array is made.
"""

import math
from collections.abc import Iterable
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")  # version 2: the limit of a container, if there is one
WHAT_TO_DO = (
    "close other programs, convert with fewer --workers or on a machine with more memory, or split "
    "the recording into shorter ones where it was made"
)


def free_bytes() -> int:
    """Memory that this process could still take, within the limit of its container."""
    free = _counts(_MEMINFO)["MemAvailable:"] << 10
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        cached = _counts(_CGROUP / "memory.stat")["inactive_file"]  # given up when asked
        free = min(free, max(0, limit - used + cached))
    return free


def check_fits(shape: Iterable[int], itemsize: int, what: str, instead: str = WHAT_TO_DO) -> None:
    """Raise ValueError, with its size and what is free, for an array that memory cannot hold.

    Args:
        shape: The array's shape.
        itemsize: Bytes of one of its values.
        what: Names the array, at the beginning of the message.
        instead: What to do, at its end.
    """
    shape = list(shape)
    size, free = math.prod(shape) * itemsize, free_bytes()
    if size > free:
        raise ValueError(
            f"{what}{shape} is too large for memory: it needs {size_text(size)}, "
            f"{size_text(free)} are free; {instead}"
        )


def no_room(what: str, error: MemoryError) -> ValueError:
    """The error about what did not fit after all."""
    return ValueError(
        f"{what} is too large for memory ({error}), {size_text(free_bytes())} are free; "
        f"{WHAT_TO_DO}"
    )


def size_text(num_bytes: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.4g} TiB"


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _counts(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}
