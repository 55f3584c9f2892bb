"""The actor role of a residual: learns from played chunks, and deploys an averaged actor."""

import math
from collections.abc import Sequence

import torch

from rrf.algorithms.optimizer_tensors import beneath
from rrf.algorithms.vla.residual_sac import ResidualSAC
from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.data.dataset.sampling import mixed_seed
from rrf.policies.policy import Policy
from rrf.policies.vla.residual import ResidualVLA
from rrf.runners.checkpoints.checkpoint import fill
from rrf.runners.vla_rl.preflight import check_residual
from rrf.storage.trajectories import PlayedEpisode

_ACTOR, _TRAINED, _CRITIC = "actor.", "weights/", "critic/"


class ResidualRole:
    """A `ResidualVLA`, its critics and its replay; implements `rrf.runners.vla_rl.roles.Actor`."""

    offload = None

    def __init__(self, cfg: ResidualSACCfg, policy: ResidualVLA, seed: int):
        """
        Args:
            policy: Its actor is trained in place.
            seed: Of the critics' first weights.
        """
        self.policy = policy.eval()
        self._generator = torch.Generator(next(policy.parameters()).device)
        with torch.random.fork_rng():
            torch.manual_seed(mixed_seed(seed))
            self.algorithm = ResidualSAC(cfg, policy, self._generator)

    def leave(self) -> None:
        """A residual and its base stay where they are."""

    def set_noise_factor(self, factor: float) -> None:
        """The randomness with which episodes were played does not matter off-policy."""

    def check(self, player: Policy, episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
        """See `check_residual`."""
        assert isinstance(player, ResidualVLA)
        return check_residual(player, self.policy, episodes)

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights for rollouts."""
        return {name: value.detach() for name, value in self.policy.state_dict().items()}

    def deployed_weights(self) -> dict[str, torch.Tensor]:
        """The weights to validate and deploy, with the averaged actor."""
        average = self.algorithm.deployed_actor.state_dict()
        return self.weights() | {_ACTOR + name: v.detach() for name, v in average.items()}

    def update(
        self,
        groups: Sequence[Sequence[PlayedEpisode]],
        horizon: int,
        round_number: int,
        lr_factor: float,
        seed: int,
    ) -> dict[str, float]:
        """Store these episodes and make the gradient steps that are due; see `ActorRole.update`.

        Raises:
            ValueError: For a number that is not finite; no checkpoint has it.
        """
        algorithm = self.algorithm
        self._generator.manual_seed(mixed_seed(seed, round_number))
        algorithm.remember([episode for group in groups for episode in group])
        algorithm.set_slowness(lr_factor)
        found = {name: value.item() for name, value in algorithm.update().items()}
        for name, value in found.items():
            if not math.isfinite(value):
                raise ValueError(
                    f"{name} is {value} in round {round_number}; the last checkpoint is from "
                    "before. Lower algorithm.critic_lr and actor_lr, or check the played episodes"
                )
        return found | {
            "replay/chunks": float(len(algorithm.replay)),
            "actor/updates": float(algorithm.num_updates),
        }

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The tensors and plain data that `restore` needs, besides the deployed weights."""
        tensors, facts = self.algorithm.state()
        pair = self.algorithm.policy
        for prefix, module in ((_TRAINED, pair.actor), (_CRITIC, pair.critic)):
            tensors |= {
                prefix + name: value.detach() for name, value in module.state_dict().items()
            }
        return tensors, {"sac": facts}

    def restore(
        self, deployed: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], facts: dict
    ) -> None:
        """Restore what `deployed_weights` and `state` returned."""
        fill(self.policy, deployed, what="the checkpoint")
        pair = self.algorithm.policy
        for prefix, module in ((_TRAINED, pair.actor), (_CRITIC, pair.critic)):
            module.load_state_dict(beneath(tensors, prefix))
        self.algorithm.load_state(tensors, facts["sac"])
