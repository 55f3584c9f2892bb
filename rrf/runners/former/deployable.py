"""Where models registered up to November 2026 ask for the kind of their policy."""

from pathlib import Path

from rrf.runners.checkpoints.deployable import CONTROL, kind_of


def is_control_checkpoint(path: str | Path) -> bool:
    """Whether a checkpoint holds a state-based policy."""
    return kind_of(path) == CONTROL
