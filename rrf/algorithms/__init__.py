"""Learning algorithms. Configs import without torch; the algorithms load it when asked for."""

from rrf.algorithms.configs import AugmentationCfg, BehaviorCloningCfg, GRPOCfg, VLAPPOCfg
from rrf.registry import lazy_attributes

__all__ = ["AugmentationCfg", "BehaviorCloningCfg", "GRPOCfg", "VLAPPOCfg"]

__getattr__ = lazy_attributes(
    __name__,
    {name: f"rrf.algorithms.configs:{name}" for name in __all__}
    | {
        "BehaviorCloning": "rrf.algorithms.behavior_cloning:BehaviorCloning",
        "GRPO": "rrf.algorithms.grpo:GRPO",
        "VLAPPO": "rrf.algorithms.vla_ppo:VLAPPO",
    },
)
