"""PPO that is charged for the size of its actions: a variant in a file of its own.

    L = L_PPO + effort_coef * E ||mu(s)||^2

with mu the mean action. `rrf ... --import gentle_ppo` runs the registration at the end; within rrf
it would be a line in `rrf/presets/__init__.py`.
"""

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.config import configclass, require_not_negative
from rrf.policies.control.actor_critic import Distribution
from rrf.presets import PRESETS
from rrf.presets.gymnasium import pendulum_ppo
from rrf.runners import OnPolicyRunnerCfg
from rrf.storage.rollout import Batch


@configclass(builds=f"{__name__}:GentlePPO")
class GentlePPOCfg(PPOCfg):
    """PPO with a price on effort."""

    effort_coef: float = 0.05
    """Weight of the mean squared action."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "effort_coef")


class GentlePPO(PPO):
    """PPO with the term of effort in the actor's loss."""

    cfg: GentlePPOCfg

    def penalty(self, batch: Batch, distribution: Distribution):
        effort = distribution.mode.square().sum(-1).mean()
        return self.cfg.effort_coef * effort, {"loss/effort": effort.detach()}


def pendulum_gentle() -> OnPolicyRunnerCfg:
    """`pendulum-ppo` with the other algorithm, all else the same."""
    base = pendulum_ppo()
    shared = {key: value for key, value in base.algorithm.to_dict().items() if key != "type"}
    algorithm = GentlePPOCfg.from_dict(shared)
    return base.replace(experiment_name="pendulum-gentle", algorithm=algorithm)


PRESETS.register("pendulum-gentle", f"{__name__}:pendulum_gentle")
