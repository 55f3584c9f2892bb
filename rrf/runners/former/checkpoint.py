"""The old module name of `load_policy`, for models registered up to November 2026."""

from rrf.runners.checkpoints.checkpoint import load_policy

__all__ = ["load_policy"]
