"""How the C library allocates the memory of tensors."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGEST = 32 * 2**20  # what glibc takes on 64-bit machines


def keep_freed_memory() -> None:
    """Keep the memory of freed tensors of up to 32 MiB for the next ones.

    By default glibc returns it to the system, which then clears every page again for each gradient
    step. With the large batches of CQL, a fifth of the time is spent so. Other C libraries are left
    as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
