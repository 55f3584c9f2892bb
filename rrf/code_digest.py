"""Which code and which simulators stand behind a result, as digests and versions."""

import importlib.metadata
from pathlib import Path

from rrf import atomic

SIMULATORS = ("envpool", "gymnasium", "mjlab", "mujoco", "mujoco-warp")


def source_digest() -> str:
    """A digest of every Python file of this package as it is on disk, committed or not."""
    root = Path(__file__).parent
    files = {p.relative_to(root).as_posix(): atomic.sha256(p) for p in root.rglob("*.py")}
    return atomic.digest_of(files)


def simulator_versions() -> dict[str, str]:
    """The installed ones of `SIMULATORS`, by name."""
    found = {}
    for name in SIMULATORS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
