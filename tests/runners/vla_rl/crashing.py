"""A simulator that fails when an episode begins."""

import typing

from rrf.config import configclass
from rrf.envs.metaworld.configs import MetaWorldCfg


@configclass(builds=f"{__name__}:CrashingEnv")
class CrashingCfg(MetaWorldCfg):
    """Looks like Meta-World."""

    kind: typing.Literal["ValueError", "ZeroDivisionError"] = "ValueError"
    """The error it raises."""


class CrashingEnv:
    """Raises in `reset`."""

    def __init__(self, cfg: CrashingCfg):
        self.cfg = cfg
        self.num_envs = cfg.num_envs

    def reset(self, initial_states, env_ids=None):
        kind = {"ValueError": ValueError, "ZeroDivisionError": ZeroDivisionError}[self.cfg.kind]
        raise kind("the motor is gone")
