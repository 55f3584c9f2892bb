"""Learning algorithms. Configs do not import torch; an algorithm loads it when it is accessed."""

from rrf.algorithms.distillation.configs import DAggerCfg, DistillationCfg
from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.algorithms.imitation.configs import DiscriminatorCfg, GAILCfg
from rrf.algorithms.model_based.configs import EnsembleCfg, MBPOCfg, ModelPPOCfg
from rrf.algorithms.off_policy.configs import (
    DSACCfg,
    DSACTCfg,
    SACBeliefCfg,
    SACCfg,
    SACSeqCfg,
    SACTransCfg,
)
from rrf.algorithms.off_policy.discrete_configs import DiscreteSACCfg
from rrf.algorithms.offline.configs import CloningCfg, CQLCfg, IQLCfg, TD3BCCfg
from rrf.algorithms.on_policy.auxiliary_configs import AuxiliaryPPOCfg
from rrf.algorithms.on_policy.configs import EPOCfg, PPOCfg, RNDCfg, SAPGCfg, SymmetryCfg
from rrf.algorithms.planning.configs import TDMPC2Cfg, TDMPCCfg
from rrf.algorithms.smooth.configs import CAPSCfg, L2C2Cfg, LCPCfg, LipsCfg, LipsNetPPOCfg
from rrf.algorithms.vla.configs import (
    AugmentationCfg,
    BehaviorCloningCfg,
    GRPOCfg,
    ReinforceCfg,
    VLAPPOCfg,
)
from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.lookup import lazy_attributes

__all__ = [
    "AMPCfg",
    "AugmentationCfg",
    "AuxiliaryPPOCfg",
    "BehaviorCloningCfg",
    "CAPSCfg",
    "CQLCfg",
    "CloningCfg",
    "DAggerCfg",
    "DSACCfg",
    "DSACTCfg",
    "DiscreteSACCfg",
    "DiscriminatorCfg",
    "DistillationCfg",
    "EPOCfg",
    "EnsembleCfg",
    "GAILCfg",
    "GRPOCfg",
    "IQLCfg",
    "L2C2Cfg",
    "LCPCfg",
    "LipsCfg",
    "LipsNetPPOCfg",
    "MBPOCfg",
    "ModelPPOCfg",
    "PPOCfg",
    "RNDCfg",
    "ReinforceCfg",
    "ResidualSACCfg",
    "SACBeliefCfg",
    "SACCfg",
    "SACSeqCfg",
    "SACTransCfg",
    "SAPGCfg",
    "SymmetryCfg",
    "TD3BCCfg",
    "TDMPC2Cfg",
    "TDMPCCfg",
    "VLAPPOCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "AuxiliaryPPO": "rrf.algorithms.on_policy.auxiliary:AuxiliaryPPO",
        "AMP": "rrf.algorithms.imitation.amp:AMP",
        "BehaviorCloning": "rrf.algorithms.vla.behavior_cloning:BehaviorCloning",
        "CAPS": "rrf.algorithms.smooth.caps:CAPS",
        "CQL": "rrf.algorithms.offline.cql:CQL",
        "Cloning": "rrf.algorithms.offline.cloning:Cloning",
        "DAgger": "rrf.algorithms.distillation.dagger:DAgger",
        "DSAC": "rrf.algorithms.off_policy.dsac:DSAC",
        "DSACT": "rrf.algorithms.off_policy.dsac:DSACT",
        "DiscreteSAC": "rrf.algorithms.off_policy.discrete_sac:DiscreteSAC",
        "Distillation": "rrf.algorithms.distillation.distillation:Distillation",
        "EPO": "rrf.algorithms.on_policy.epo:EPO",
        "GAIL": "rrf.algorithms.imitation.gail:GAIL",
        "GRPO": "rrf.algorithms.vla.grpo:GRPO",
        "IQL": "rrf.algorithms.offline.iql:IQL",
        "L2C2": "rrf.algorithms.smooth.l2c2:L2C2",
        "LCP": "rrf.algorithms.smooth.lips:LCP",
        "Lips": "rrf.algorithms.smooth.lips:Lips",
        "LipsNetPPO": "rrf.algorithms.smooth.lips:LipsNetPPO",
        "MBPO": "rrf.algorithms.model_based.mbpo:MBPO",
        "ModelPPO": "rrf.algorithms.model_based.model_ppo:ModelPPO",
        "PPO": "rrf.algorithms.on_policy.ppo:PPO",
        "Reinforce": "rrf.algorithms.vla.grpo:Reinforce",
        "ResidualSAC": "rrf.algorithms.vla.residual_sac:ResidualSAC",
        "SAC": "rrf.algorithms.off_policy.sac:SAC",
        "SACBelief": "rrf.algorithms.off_policy.sac_belief:SACBelief",
        "SACSeq": "rrf.algorithms.off_policy.sac_seq:SACSeq",
        "SACTrans": "rrf.algorithms.off_policy.sac_seq:SACTrans",
        "SAPG": "rrf.algorithms.on_policy.sapg:SAPG",
        "TD3BC": "rrf.algorithms.offline.td3_bc:TD3BC",
        "TDMPC": "rrf.algorithms.planning.tdmpc:TDMPC",
        "TDMPC2": "rrf.algorithms.planning.tdmpc2:TDMPC2",
        "VLAPPO": "rrf.algorithms.vla.ppo:VLAPPO",
    },
    __all__,
)
