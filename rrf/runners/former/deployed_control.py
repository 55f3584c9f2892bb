"""Where models registered up to November 2026 look for `DeployedControl`."""

from rrf.runners.checkpoints.deployed_control import DeployedControl

__all__ = ["DeployedControl"]
