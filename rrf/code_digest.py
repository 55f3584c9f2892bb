"""The digest of the code, and the packages and the processor that a result depends on."""

import functools
import importlib.metadata
import platform
from collections.abc import Iterable
from pathlib import Path

from rrf import atomic, workspace

SIMULATORS = ("envpool", "gymnasium", "mjlab", "mujoco", "mujoco-warp")
_NUMERICS = ("metaworld", "numpy", "torch", "warp-lang")


@functools.cache
def source_digest() -> str:
    """One digest over all Python and C files of this package as they are on disk, committed or
    not, when this process first asks: what it runs was loaded by then, whatever an editor writes
    later. It is the same in a checkout and where its wheel is installed.
    """
    root = Path(__file__).parent
    paths = [p.relative_to(root) for kind in ("*.py", "*.c") for p in root.rglob(kind)]
    of_code = [path for path in paths if path.parts[0] != workspace.SHIPPED]
    return atomic.digest_of({path.as_posix(): atomic.sha256(root / path) for path in of_code})


def simulator_versions() -> dict[str, str]:
    """Name -> version of those `SIMULATORS` that are installed."""
    return versions(SIMULATORS)


def surroundings() -> dict[str, str]:
    """What, besides the code, the last digit of a result can depend on: Python, the packages that
    compute, and the model of the processor; name -> version or model.
    """
    python = {"python": platform.python_version(), "processor": _processor()}
    return python | versions((*SIMULATORS, *_NUMERICS))


def versions(names: Iterable[str]) -> dict[str, str]:
    """Name -> version of those of these packages that are installed."""
    installed = {}
    for name in names:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _processor() -> str:
    """The model of the processor as Linux calls it; elsewhere the architecture."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
