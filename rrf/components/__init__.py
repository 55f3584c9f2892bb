"""Policies and their heads. Configs import without torch; the modules load it when asked for."""

from rrf.components.configs import (
    ActionHeadCfg,
    CompactVLACfg,
    DiscreteTokenHeadCfg,
    PolicyCfg,
    RegressionHeadCfg,
)
from rrf.registry import lazy_attributes

__all__ = [
    "ActionHeadCfg",
    "CompactVLACfg",
    "DiscreteTokenHeadCfg",
    "PolicyCfg",
    "RegressionHeadCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {name: f"rrf.components.configs:{name}" for name in __all__}
    | {
        "CompactVLA": "rrf.components.compact_vla:CompactVLA",
        "DiscreteTokenHead": "rrf.components.action_heads:DiscreteTokenHead",
        "RegressionHead": "rrf.components.action_heads:RegressionHead",
    },
)
