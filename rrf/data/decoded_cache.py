"""Decoded images in a file that is mapped into memory, shared by all processes that read it.

    <folder>/<name>-<version>-<part>.u8     uint8 [N, H, W, 3], nothing else

It is written once: processes that want the same file wait for the one that writes it. It is there
whole or not at all. Another version replaces all parts; who still has an old one mapped keeps it.
"""

import contextlib
import errno
import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np

_TMP_PREFIX = ".tmp-"
_WRITE_BYTES = 64 << 20


def mapped_images(
    folder: Path,
    name: str,
    version: str,
    part: str,
    shape: tuple[int, int, int, int],
    decode: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """uint8 `shape`, read-only, of a file that is written first if it is not there.

    Args:
        folder: Where the file lies.
        name: What the images are of.
        version: Changes with their content. Files of the same name and another version are removed.
        part: Which of them.
        shape: Frames, height, width, 3.
        decode: Gives the images of ascending frame numbers.

    Raises:
        OSError: Naming folder and space needed if the disk is too full. Nothing is left behind.
    """
    path = folder / f"{quote(name, safe='')}-{version}-{part}.u8"
    if not _is_complete(path, shape):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            if not _is_complete(path, shape):
                _write(path, shape, decode)
                for other in folder.glob(f"{quote(name, safe='')}-*-*.u8"):
                    if other.stem.split("-")[-2] != version:
                        other.unlink()
    return np.asarray(np.memmap(path, np.uint8, "r", shape=shape))


def _is_complete(path: Path, shape: tuple[int, int, int, int]) -> bool:
    return path.is_file() and path.stat().st_size == math.prod(shape)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in `folder`, which the system notices also of one that was
    killed; remove what such a one left.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for leftover in folder.glob(f"{_TMP_PREFIX}*.u8"):
            leftover.unlink()
        yield
    finally:
        os.close(descriptor)


def _write(
    path: Path, shape: tuple[int, int, int, int], decode: Callable[[np.ndarray], np.ndarray]
) -> None:
    needed, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if needed > free:
        raise _disk_full(path, needed, free)
    tmp = path.with_name(f"{_TMP_PREFIX}{path.name}")
    at_once = max(1, _WRITE_BYTES // math.prod(shape[1:]))
    try:
        with tmp.open("wb") as file:
            for start in range(0, shape[0], at_once):
                images = decode(np.arange(start, min(start + at_once, shape[0])))
                file.write(np.ascontiguousarray(images).data)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path, needed, shutil.disk_usage(path.parent).free) from error
        raise
    finally:
        tmp.unlink(missing_ok=True)


def _disk_full(path: Path, needed: int, free: int) -> OSError:
    return OSError(
        errno.ENOSPC,
        f"no space left to keep decoded images: they need {needed} bytes, {free} are free; "
        "free some, choose another cache_dir, or read fewer episodes or cameras",
        str(path.parent),
    )
