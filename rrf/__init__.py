"""RoboRenForce: robot data in, a gated, traceable, deployable policy out.

`from rrf import configclass, runners, algorithms, components, networks` is the user's front door.
Nothing is imported before it is asked for.
"""

import importlib

__version__ = "0.1.0"

_SUBPACKAGES = ("algorithms", "components", "networks", "runners")


def __getattr__(name: str):
    if name == "configclass":
        return importlib.import_module("rrf.config").configclass
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rrf.{name}")
    raise AttributeError(f"rrf has no '{name}'; it has: configclass, {', '.join(_SUBPACKAGES)}")
