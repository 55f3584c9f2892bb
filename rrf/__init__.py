"""RoboRenForce: robot data in, a gated, traceable, deployable policy out.

Users start with `from rrf import configclass, runners, algorithms, components, networks`, where
`components` is another name for `rrf.policies`. Each of these is imported on first use.
"""

import importlib

__version__ = "0.1.0"

_FRONT = {
    "algorithms": "rrf.algorithms",
    "components": "rrf.policies",
    "networks": "rrf.networks",
    "policies": "rrf.policies",
    "runners": "rrf.runners",
}


def __getattr__(name: str):
    if name == "configclass":
        return importlib.import_module("rrf.config").configclass
    if name in _FRONT:
        return importlib.import_module(_FRONT[name])
    raise AttributeError(f"rrf has no '{name}'; it has: configclass, {', '.join(_FRONT)}")
