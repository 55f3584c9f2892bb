"""Learning algorithms. Configs import without torch; the algorithms load it when asked for."""

from rrf.algorithms.configs import AugmentationCfg, BehaviorCloningCfg, GRPOCfg, VLAPPOCfg
from rrf.algorithms.off_policy_configs import (
    DSACCfg,
    DSACTCfg,
    SACCfg,
    SACSeqCfg,
    SACTransCfg,
)
from rrf.algorithms.on_policy_configs import (
    CAPSCfg,
    EPOCfg,
    L2C2Cfg,
    LCPCfg,
    LipsCfg,
    LipsNetPPOCfg,
    PPOCfg,
    RNDCfg,
    SAPGCfg,
    SymmetryCfg,
)
from rrf.registry import lazy_attributes

__all__ = [
    "AugmentationCfg",
    "BehaviorCloningCfg",
    "CAPSCfg",
    "DSACCfg",
    "DSACTCfg",
    "EPOCfg",
    "GRPOCfg",
    "L2C2Cfg",
    "LCPCfg",
    "LipsCfg",
    "LipsNetPPOCfg",
    "PPOCfg",
    "RNDCfg",
    "SACCfg",
    "SACSeqCfg",
    "SACTransCfg",
    "SAPGCfg",
    "SymmetryCfg",
    "VLAPPOCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "BehaviorCloning": "rrf.algorithms.behavior_cloning:BehaviorCloning",
        "CAPS": "rrf.algorithms.caps:CAPS",
        "DSAC": "rrf.algorithms.dsac:DSAC",
        "DSACT": "rrf.algorithms.dsac:DSACT",
        "EPO": "rrf.algorithms.epo:EPO",
        "GRPO": "rrf.algorithms.grpo:GRPO",
        "L2C2": "rrf.algorithms.l2c2:L2C2",
        "LCP": "rrf.algorithms.lips:LCP",
        "Lips": "rrf.algorithms.lips:Lips",
        "LipsNetPPO": "rrf.algorithms.lips:LipsNetPPO",
        "PPO": "rrf.algorithms.ppo:PPO",
        "SAC": "rrf.algorithms.sac:SAC",
        "SACSeq": "rrf.algorithms.sac_seq:SACSeq",
        "SACTrans": "rrf.algorithms.sac_trans:SACTrans",
        "SAPG": "rrf.algorithms.sapg:SAPG",
        "VLAPPO": "rrf.algorithms.vla_ppo:VLAPPO",
    },
    __all__,
)
