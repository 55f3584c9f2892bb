"""Configs of the PPO variants that make actions smoother. This file does not import torch."""

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.config import configclass, require_not_negative


@configclass(builds="rrf.algorithms.smooth.caps:CAPS")
class CAPSCfg(PPOCfg):
    """Conditioning for action policy smoothness (arXiv:2012.06644): similar states shall lead to
    similar actions."""

    temporal_coef: float = 0.2
    """Weight of the distance between the mean actions in a state and in its successor."""
    spatial_coef: float = 0.2
    """Weight of the distance between the mean actions in a state and in a noisy copy of it."""
    sigma: float = 0.1
    """Standard deviation of that noise, in standard deviations of the observations."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "temporal_coef", "spatial_coef", "sigma")


@configclass(builds="rrf.algorithms.smooth.l2c2:L2C2")
class L2C2Cfg(PPOCfg):
    """Locally Lipschitz continuous constraint (arXiv:2202.07152) between a state and the next."""

    policy_coef: float = 2.0
    """Weight of the squared distance between mean actions. The paper's bounds give 0.111, which
    smooths little."""
    value_coef: float = 0.2
    """Weight of the squared distance between values; as in the paper, a tenth of policy_coef."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "policy_coef", "value_coef")


@configclass(builds="rrf.algorithms.smooth.lips:Lips")
class LipsCfg(PPOCfg):
    """PPO with a penalty on the Jacobian of the mean action with respect to the normalised
    observation."""

    jacobian_coef: float = 5e-3
    """Weight of the Jacobian's squared Frobenius norm."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "jacobian_coef")


@configclass(builds="rrf.algorithms.smooth.lips:LCP")
class LCPCfg(PPOCfg):
    """Lipschitz-constrained policies (arXiv:2410.11825)."""

    gradient_coef: float = 1e-3
    """Weight of the squared gradient of log pi(a|s) with respect to the normalised observation. The
    authors use 0.002 on other tasks; half of it is enough for Pendulum."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "gradient_coef")


@configclass(builds="rrf.algorithms.smooth.lips:LipsNetPPO")
class LipsNetPPOCfg(PPOCfg):
    """PPO for an actor that learns its Lipschitz constant (LipsNet, ICML 2023). Use it with
    components.LipsNetActorCfg."""

    lipschitz_coef: float = 2e-3
    """Weight of the squared Lipschitz constant. The authors' code uses 0.1 on other tasks; a
    fiftieth of it is enough for Pendulum."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "lipschitz_coef")
