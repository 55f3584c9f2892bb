"""PPO that makes actions smoother, as data. Imports no torch."""

from rrf.algorithms.on_policy.configs import PPOCfg, require_not_negative
from rrf.config import configclass


@configclass(builds="rrf.algorithms.smooth.caps:CAPS")
class CAPSCfg(PPOCfg):
    """Conditioning for action policy smoothness (arXiv:2012.06644): near states, near actions."""

    temporal_coef: float = 0.2
    """Weight of the distance between the mean actions in a state and in its successor."""
    spatial_coef: float = 0.2
    """Weight of the distance between the mean actions in a state and near it."""
    sigma: float = 0.1
    """How near: standard deviation of the noise, in standard deviations of the observations."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "temporal_coef", "spatial_coef", "sigma")


@configclass(builds="rrf.algorithms.smooth.l2c2:L2C2")
class L2C2Cfg(PPOCfg):
    """Locally Lipschitz continuous constraint (arXiv:2202.07152), between a state and the next."""

    policy_coef: float = 2.0
    """Weight of the squared distance of mean actions. The paper's bounds make it 0.111, which
    smooths little."""
    value_coef: float = 0.2
    """Weight of the squared distance of values, a tenth of policy_coef as in the paper."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "policy_coef", "value_coef")


@configclass(builds="rrf.algorithms.smooth.lips:Lips")
class LipsCfg(PPOCfg):
    """A penalty on the Jacobian of the mean action by the normalised observation."""

    jacobian_coef: float = 5e-3
    """Weight of its squared Frobenius norm."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "jacobian_coef")


@configclass(builds="rrf.algorithms.smooth.lips:LCP")
class LCPCfg(PPOCfg):
    """Lipschitz-constrained policies (arXiv:2410.11825)."""

    gradient_coef: float = 1e-3
    """Weight of the squared gradient of log pi(a|s) by the normalised observation. The authors' is
    0.002, on other tasks; half of it suffices for Pendulum."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "gradient_coef")


@configclass(builds="rrf.algorithms.smooth.lips:LipsNetPPO")
class LipsNetPPOCfg(PPOCfg):
    """PPO of an actor whose Lipschitz constant is learned (components.LipsNetActorCfg; LipsNet,
    ICML 2023)."""

    lipschitz_coef: float = 2e-3
    """Weight of the squared Lipschitz constant. The authors' code has 0.1, on other tasks; a
    fiftieth of it suffices for Pendulum."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "lipschitz_coef")
