"""The training loops. A config or a runner is imported when it is accessed; configs do not import
torch.
"""

import typing

from rrf.lookup import lazy_attributes

if typing.TYPE_CHECKING:
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
        "AdamWCfg": "rrf.runners.configs:AdamWCfg",
        "ControlRunnerCfg": "rrf.runners.control.configs:ControlRunnerCfg",
        "DistillationRunner": "rrf.runners.control.distillation:DistillationRunner",
        "DistillationRunnerCfg": "rrf.runners.control.distillation_configs:DistillationRunnerCfg",
        "EMACfg": "rrf.runners.configs:EMACfg",
        "EPOOnPolicyRunner": "rrf.runners.control.sapg:EPOOnPolicyRunner",
        "EPOOnPolicyRunnerCfg": "rrf.runners.control.configs:EPOOnPolicyRunnerCfg",
        "GuardCfg": "rrf.runners.control.configs:GuardCfg",
        "ImitationRunner": "rrf.runners.control.imitation:ImitationRunner",
        "ImitationRunnerCfg": "rrf.runners.control.imitation_configs:ImitationRunnerCfg",
        "OfflineRunner": "rrf.runners.control.offline:OfflineRunner",
        "OfflineRunnerCfg": "rrf.runners.control.off_policy_configs:OfflineRunnerCfg",
        "OffPolicyRunner": "rrf.runners.control.off_policy:OffPolicyRunner",
        "OffPolicyRunnerCfg": "rrf.runners.control.off_policy_configs:OffPolicyRunnerCfg",
        "OnPolicyRunner": "rrf.runners.control.on_policy:OnPolicyRunner",
        "OnPolicyRunnerCfg": "rrf.runners.control.configs:OnPolicyRunnerCfg",
        "PlanningRunnerCfg": "rrf.runners.control.off_policy_configs:PlanningRunnerCfg",
        "RunnerCfg": "rrf.runners.configs:RunnerCfg",
        "SAPGOnPolicyRunner": "rrf.runners.control.sapg:SAPGOnPolicyRunner",
        "SAPGOnPolicyRunnerCfg": "rrf.runners.control.configs:SAPGOnPolicyRunnerCfg",
        "ScheduleCfg": "rrf.runners.configs:ScheduleCfg",
        "SupervisedRunner": "rrf.runners.supervised.runner:SupervisedRunner",
        "SupervisedRunnerCfg": "rrf.runners.supervised.configs:SupervisedRunnerCfg",
    },
)
