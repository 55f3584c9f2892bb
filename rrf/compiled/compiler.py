"""Compiles C code of this project with the machine's own compiler (`$CC` or cc).

A compiled library is kept in the user's cache and made anew when code or machine are others.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import typing
from pathlib import Path

_FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
_FLAGS += ["-fopenmp", "-shared", "-fPIC"]
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


log = logging.getLogger(__name__)
_reasons: list[str] = []  # why there is no library of a file, as far as this process has tried


@functools.cache
def library(source: Path, words: tuple[str, ...] = ()) -> typing.Any:
    """The library of a C file; None where it cannot be compiled or loaded. A process says once why,
    and computes without.

    Args:
        words: What the compiler is told besides, to find the headers and libraries of others.
    """
    try:
        return ctypes.CDLL(str(_compiled(source, words)))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").splitlines() or ["it says nothing"]
        line = next((line for line in said if "error" in line), said[0])
        _reasons.append(f"{error.cmd[0]} fails on {source.name}: {line}")
    except (OSError, subprocess.SubprocessError) as error:
        _reasons.append(str(error))
    if len(_reasons) == 1:
        log.warning("rrf computes without its C code, which is slower: %s", _reasons[0])
    return None


def _compiled(source: Path, others: tuple[str, ...]) -> Path:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise FileNotFoundError(
            f"there is no compiler '{compiler}'; install one, or name yours: CC=/path/to/cc"
        )
    facts = [compiler, *_FLAGS, *others, _text(source), platform.machine(), _processor()]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    kept = _cache_folder() / f"{source.stem}-{digest}.so"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            built = Path(scratch) / kept.name
            words = [compiler, *_FLAGS, str(source), *others, "-lm", "-o", str(built)]
            subprocess.run(words, check=True, capture_output=True, timeout=120)
            built.replace(kept)
    return kept


def _text(source: Path) -> str:
    """The code of a file and of the files that it includes."""
    code = source.read_text()
    return code + "".join(_text(source.parent / name) for name in _INCLUDE.findall(code))


def _processor() -> str:
    """What the processor can do; the code is compiled for exactly this one."""
    cpu_info = Path("/proc/cpuinfo")  # exists on Linux only
    if not cpu_info.is_file():
        return platform.processor()
    lines = cpu_info.read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _cache_folder() -> Path:
    """The user's cache. What is loaded from it runs, so nobody else may write there.

    Raises:
        OSError: If somebody else may, or if there is no such folder and none can be made.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "rrf"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise PermissionError(f"others may write to {folder}")
    return folder
