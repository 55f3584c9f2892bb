"""A run that trains a residual on a frozen policy, on one machine: its actor role, and how it is
built."""

import copy
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from rrf.algorithms.optimizer_tensors import beneath
from rrf.algorithms.vla.residual_sac import ResidualSAC
from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.config import first_error
from rrf.data.dataset.sampling import mixed_seed
from rrf.lineage import Lineage
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.inline_run import check_fit
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies.policy import Policy
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.residual import ResidualVLA
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.checkpoint import fill
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.process_group import known_device
from rrf.runners.supervised.parent import policy_of_family
from rrf.runners.vla_rl.preflight import check_residual
from rrf.runners.vla_rl.residual_configs import ResidualSACRunnerCfg
from rrf.runners.vla_rl.runner import VLARLRunner
from rrf.storage.trajectories import PlayedEpisode

_ACTOR, _TRAINED, _CRITIC = "actor.", "weights/", "critic/"


class ResidualRole:
    """A `ResidualVLA`, its critics and its replay; implements `rrf.runners.vla_rl.roles.Actor`.

    It learns from played chunks, and deploys an averaged actor.
    """

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
        metrics = {name: value.item() for name, value in algorithm.update().items()}
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise ValueError(
                    f"{name} is {value} in round {round_number}; the last checkpoint is from "
                    "before. Lower algorithm.critic_lr and actor_lr, or check the played episodes"
                )
        return metrics | {
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


def build_runner(
    cfg: ResidualSACRunnerCfg, run_dir: str | Path, lineage: Lineage | None = None
) -> VLARLRunner:
    """The runner for a residual on the policy in `cfg.init_from`, with its roles and backend.

    Raises:
        ValueError: If there is no checkpoint to start from, if its policy cannot be corrected, or
            if policy, environment and tasks do not fit together.
    """
    parent = checkpoint.find(cfg.check_parent())
    cfg = cfg.replace(policy=_corrected(parent, cfg.policy))
    check_fit(cfg)
    norm_stats = checkpoint.load_norm_stats(parent)
    with torch.random.fork_rng():
        torch.manual_seed(cfg.seed)
        policy: ResidualVLA = cfg.policy.rebuild(norm_stats, parent)
    checkpoint.load_weights(policy.base, parent)
    policy.to(known_device(cfg.device))
    actor, rollout = build_roles(cfg, policy)
    backend = InlineBackend(cfg.env, rollout, cfg.num_workers, cfg.worker_timeout_s)
    lineage = (lineage or Lineage()).replace(parent_checkpoint=deployable_digest(parent))
    return VLARLRunner(cfg, actor, backend, run_dir, norm_stats, lineage)


def build_roles(cfg: ResidualSACRunnerCfg, policy: ResidualVLA) -> tuple[ResidualRole, RolloutRole]:
    """The roles that train and play a policy, on its device. They share the base in memory."""
    base = {id(weights): weights for weights in policy.base.parameters()}
    played = copy.deepcopy(policy, memo=base).eval()
    rollout = RolloutRole(played, cfg.inference_batch, sees_end=True)
    return ResidualRole(cfg.algorithm, policy, cfg.seed), rollout


def _corrected(parent: Path, policy: ResidualVLACfg) -> ResidualVLACfg:
    """The config of a residual on the policy in a checkpoint."""
    try:
        saved = PolicyCfg.from_dict(checkpoint.load_config(parent)["policy"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{parent} holds no policy that sees images ({first_error(error)}), so there are no "
            "chunks to correct; give a checkpoint of e.g. compact-vla-one-demo as init_from"
        ) from error
    if policy.base is not None:
        policy_of_family(parent, policy.base)
    try:
        return policy.over(saved)
    except ValueError as error:
        raise ValueError(f"{parent}: {error}") from error
