"""The config of SAC over a frozen policy. No torch here."""

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.vla.configs import SUCCESS, require_reward
from rrf.config import configclass, require_at_least_one, require_not_negative
from rrf.policies.control.off_policy_configs import QNetworkCfg
from rrf.policies.vla.residual_configs import NORMED_MLP


@configclass(builds="rrf.algorithms.vla.residual_sac:ResidualSAC")
class ResidualSACCfg(SACCfg):
    """Soft actor-critic (arXiv:1812.05905) of the actor that corrects a frozen policy's chunks. A
    transition is a chunk."""

    uses_hindsight = False
    gamma = 0.97
    """Discount factor per action. A chunk of H actions discounts what follows by gamma^H."""
    updates_per_step = 0.5
    """Gradient steps per played chunk."""
    warmup_steps = 2000
    """Chunks that are played before learning begins."""
    n_steps = 3
    """Chunks whose rewards a target sums before it adds the critics' estimate (n-step return)."""
    init_alpha = 0.01
    """Initial temperature, that is the weight of the entropy in the objective, per nat."""
    target_entropy: float | None = None
    """Target entropy of a correction before `scale`, in nats; null uses minus the number of its
    elements."""
    max_grad_norm = 1.0
    critic_warmup_updates: int = 1000
    """First gradient steps, in which only the critics learn."""
    correction_cost: float = 0.0
    """Weight of the squared correction before `scale`, summed over its elements, in the actor's
    loss (RLT, arXiv:2604.23073): it keeps to the base's chunk unless the critics see a gain."""
    critic: QNetworkCfg = QNetworkCfg(backbone_cfg=NORMED_MLP)
    """The critics. They see what the actor sees, and the correction."""
    replay_size: int = 50_000
    """Chunks that the replay holds. It is saved with every checkpoint."""
    group_size: int = 1
    """Episodes played from one initial state."""
    reward: str = SUCCESS
    """What is rewarded: success (1 when the task is solved), env or a function, as in
    `rrf.algorithms.vla.configs.PolicyGradientCfg`."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "replay_size", "group_size")
        require_not_negative(self, "critic_warmup_updates", "correction_cost")
        require_reward(self.reward)
        if self.critic.encoder or self.critic.obs_normalization:
            raise ValueError(
                "critic has an encoder or obs_normalization, which learning from single chunks "
                "does not use; leave them out"
            )
