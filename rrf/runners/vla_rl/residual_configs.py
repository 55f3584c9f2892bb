"""The config of runs that train a residual on a frozen policy. This file does not import torch."""

import typing

from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.config import configclass
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners.configs import ScheduleCfg
from rrf.runners.vla_rl.configs import RoundsCfg


@configclass(builds="rrf.orchestra.residual_run:build_runner")
class ResidualSACRunnerCfg(RoundsCfg):
    """Off-policy reinforcement learning of corrections to a frozen policy's chunks, in
    simulation."""

    why_parent: typing.ClassVar[str] = (
        "a residual corrects a policy that already succeeds now and then"
    )

    policy: ResidualVLACfg = ResidualVLACfg()  # type: ignore[assignment]
    """The policy to train. Its base is that of `init_from`."""
    algorithm: ResidualSACCfg = ResidualSACCfg()
    """The algorithm."""
    num_groups: int = 96
    """Number of groups of episodes (of `algorithm.group_size`, so of one) that a round plays."""
    schedule: ScheduleCfg = ScheduleCfg(kind="constant")
    """Schedule of all learning rates over the rounds."""
