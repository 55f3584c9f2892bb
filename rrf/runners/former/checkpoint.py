"""Where models registered up to November 2026 look for `load_policy`."""

from rrf.runners.checkpoints.checkpoint import load_policy

__all__ = ["load_policy"]
