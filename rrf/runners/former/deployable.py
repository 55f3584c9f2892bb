"""The old module name of the check for the policy's kind, for models up to November 2026."""

from pathlib import Path

from rrf.runners.checkpoints.deployable import CONTROL, kind_of


def is_control_checkpoint(path: str | Path) -> bool:
    """Whether a checkpoint holds a state-based policy."""
    return kind_of(path) == CONTROL
