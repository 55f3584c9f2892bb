"""Policies and their heads. Configs import without torch; the modules load it when asked for."""

from rrf.components.configs import (
    ActionHeadCfg,
    CompactVLACfg,
    DiscreteTokenHeadCfg,
    FlowMatchingHeadCfg,
    GaussianHeadCfg,
    PolicyCfg,
    RegressionHeadCfg,
)
from rrf.registry import lazy_attributes

__all__ = [
    "ActionHeadCfg",
    "CompactVLACfg",
    "DiscreteTokenHeadCfg",
    "FlowMatchingHeadCfg",
    "GaussianHeadCfg",
    "PolicyCfg",
    "RegressionHeadCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {name: f"rrf.components.configs:{name}" for name in __all__}
    | {
        "CompactVLA": "rrf.components.compact_vla:CompactVLA",
        "DiscreteTokenHead": "rrf.components.action_heads:DiscreteTokenHead",
        "FlowMatchingHead": "rrf.components.flow_head:FlowMatchingHead",
        "GaussianHead": "rrf.components.action_heads:GaussianHead",
        "RegressionHead": "rrf.components.action_heads:RegressionHead",
    },
)
