"""The old module name of `DeployedControl`, for models registered up to November 2026."""

from rrf.runners.checkpoints.deployed_control import DeployedControl

__all__ = ["DeployedControl"]
