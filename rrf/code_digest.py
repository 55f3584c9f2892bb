"""The digest of the code and the versions of the simulators that a result depends on."""

import importlib.metadata
from pathlib import Path

from rrf import atomic

SIMULATORS = ("envpool", "gymnasium", "mjlab", "mujoco", "mujoco-warp")


def source_digest() -> str:
    """One digest over all Python files of this package as they are on disk, committed or not."""
    root = Path(__file__).parent
    files = {p.relative_to(root).as_posix(): atomic.sha256(p) for p in root.rglob("*.py")}
    return atomic.digest_of(files)


def simulator_versions() -> dict[str, str]:
    """Name -> version of those `SIMULATORS` that are installed."""
    found = {}
    for name in SIMULATORS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
