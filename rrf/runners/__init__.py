"""The loops that train. Configs import without torch; the runners load it when asked for."""

from rrf.registry import lazy_attributes
from rrf.runners.configs import AdamWCfg, EMACfg, RunnerCfg, ScheduleCfg, SupervisedRunnerCfg
from rrf.runners.control_configs import (
    ControlRunnerCfg,
    EPOOnPolicyRunnerCfg,
    GuardCfg,
    OffPolicyRunnerCfg,
    OnPolicyRunnerCfg,
    SAPGOnPolicyRunnerCfg,
)

__all__ = [
    "AdamWCfg",
    "ControlRunnerCfg",
    "EMACfg",
    "EPOOnPolicyRunnerCfg",
    "GuardCfg",
    "OffPolicyRunnerCfg",
    "OnPolicyRunnerCfg",
    "RunnerCfg",
    "SAPGOnPolicyRunnerCfg",
    "ScheduleCfg",
    "SupervisedRunnerCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "EPOOnPolicyRunner": "rrf.runners.epo:EPOOnPolicyRunner",
        "OffPolicyRunner": "rrf.runners.off_policy:OffPolicyRunner",
        "OnPolicyRunner": "rrf.runners.on_policy:OnPolicyRunner",
        "SAPGOnPolicyRunner": "rrf.runners.sapg:SAPGOnPolicyRunner",
        "SupervisedRunner": "rrf.runners.supervised:SupervisedRunner",
    },
    __all__,
)
