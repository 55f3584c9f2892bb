"""The loops that train. Configs import without torch; the runners load it when asked for."""

from rrf.registry import lazy_attributes
from rrf.runners.configs import AdamWCfg, EMACfg, RunnerCfg, ScheduleCfg, SupervisedRunnerCfg

__all__ = ["AdamWCfg", "EMACfg", "RunnerCfg", "ScheduleCfg", "SupervisedRunnerCfg"]

__getattr__ = lazy_attributes(
    __name__,
    {name: f"rrf.runners.configs:{name}" for name in __all__}
    | {"SupervisedRunner": "rrf.runners.supervised:SupervisedRunner"},
)
