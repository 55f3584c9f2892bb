"""Decoded images in a file that is mapped into memory and shared by all processes that read it.

    <folder>/<name>-<version>-<part>.u8     uint8 [N, H, W, 3], nothing else

The file is written once: processes that want the same file wait for the one that writes it. It is
complete or does not exist. Another version replaces all parts. A process that still has an old part
mapped keeps it.
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
    at_once: int | None = None,
) -> np.ndarray:
    """The images, uint8 `shape`, read-only. Their file is written first if it does not exist.

    Args:
        folder: The folder of the file.
        name: Identifies what the images show.
        version: Changes with the content of the images. Files of the same name and another version
            are removed.
        part: Identifies which of the images they are.
        shape: Frames, height, width, 3.
        decode: Returns the images of ascending frame numbers.
        at_once: Frames to ask of `decode` in one call; as many as 64 MiB hold by default.

    Raises:
        OSError: If the disk is too full; the message names the folder and the space needed. Nothing
            is left behind.
    """
    path = folder / f"{quote(name, safe='')}-{version}-{part}.u8"
    if not _is_complete(path, shape):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            if not _is_complete(path, shape):
                _write(path, shape, decode, at_once)
                for other in folder.glob(f"{quote(name, safe='')}-*-*.u8"):
                    if other.stem.split("-")[-2] != version:
                        other.unlink()
    return np.asarray(np.memmap(path, np.uint8, "r", shape=shape))


def _is_complete(path: Path, shape: tuple[int, int, int, int]) -> bool:
    return path.is_file() and path.stat().st_size == math.prod(shape)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in `folder`, and remove what a killed process left there.

    The lock of a killed process is released by the operating system.
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
    path: Path,
    shape: tuple[int, int, int, int],
    decode: Callable[[np.ndarray], np.ndarray],
    at_once: int | None,
) -> None:
    needed, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if needed > free:
        raise _disk_full(path, needed, free)
    tmp = path.with_name(f"{_TMP_PREFIX}{path.name}")
    at_once = at_once or max(1, _WRITE_BYTES // math.prod(shape[1:]))
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
        "free some space, choose another cache_dir, or read fewer episodes or cameras",
        str(path.parent),
    )
