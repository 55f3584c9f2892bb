"""The training loops. Configs do not import torch; a runner loads it when it is accessed."""

from rrf.lookup import lazy_attributes
from rrf.runners.configs import AdamWCfg, EMACfg, RunnerCfg, ScheduleCfg
from rrf.runners.control.configs import (
    ControlRunnerCfg,
    EPOOnPolicyRunnerCfg,
    GuardCfg,
    OnPolicyRunnerCfg,
    SAPGOnPolicyRunnerCfg,
)
from rrf.runners.control.distillation_configs import DistillationRunnerCfg
from rrf.runners.control.imitation_configs import ImitationRunnerCfg
from rrf.runners.control.off_policy_configs import (
    OfflineRunnerCfg,
    OffPolicyRunnerCfg,
    PlanningRunnerCfg,
)
from rrf.runners.supervised.configs import SupervisedRunnerCfg

__all__ = [
    "AdamWCfg",
    "ControlRunnerCfg",
    "DistillationRunnerCfg",
    "EMACfg",
    "EPOOnPolicyRunnerCfg",
    "GuardCfg",
    "ImitationRunnerCfg",
    "OffPolicyRunnerCfg",
    "OfflineRunnerCfg",
    "OnPolicyRunnerCfg",
    "PlanningRunnerCfg",
    "RunnerCfg",
    "SAPGOnPolicyRunnerCfg",
    "ScheduleCfg",
    "SupervisedRunnerCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "DistillationRunner": "rrf.runners.control.distillation:DistillationRunner",
        "EPOOnPolicyRunner": "rrf.runners.control.sapg:EPOOnPolicyRunner",
        "ImitationRunner": "rrf.runners.control.imitation:ImitationRunner",
        "OffPolicyRunner": "rrf.runners.control.off_policy:OffPolicyRunner",
        "OfflineRunner": "rrf.runners.control.offline:OfflineRunner",
        "OnPolicyRunner": "rrf.runners.control.on_policy:OnPolicyRunner",
        "SAPGOnPolicyRunner": "rrf.runners.control.sapg:SAPGOnPolicyRunner",
        "SupervisedRunner": "rrf.runners.supervised.runner:SupervisedRunner",
    },
    __all__,
)
