"""The config of training with an adversarial motion prior. This file does not import torch."""

from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.mjlab.configs import MotionEnvCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg


@configclass(builds="rrf.runners.control.amp:AMPRunner")
class AMPRunnerCfg(OnPolicyRunnerCfg):
    """On-policy training that also rewards the style of reference motions."""

    env: ControlEnvCfg = MotionEnvCfg()
    """The environment to train in; it gives the reference motions."""
    algorithm: AMPCfg = AMPCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm."""
