"""RoboRenForce: robot data in, a gated, traceable, deployable policy out.

Users start with `from rrf import configclass, runners, algorithms, components, networks`, where
`components` is another name for `rrf.policies`. `rrf.load_policy("NAME@champion")` loads a
registered policy. Each of these is imported on first use.
"""

import importlib
import typing

__version__ = "0.1.0"

_FRONT = {
    "algorithms": "rrf.algorithms",
    "components": "rrf.policies",
    "configclass": "rrf.config:configclass",
    "load_policy": "rrf.registry.loading:load_policy",
    "networks": "rrf.networks",
    "policies": "rrf.policies",
    "runners": "rrf.runners",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _FRONT:
        raise AttributeError(f"rrf has no '{name}'; it has: {', '.join(_FRONT)}")
    module, _, attribute = _FRONT[name].partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
