"""The config of a frozen policy with a small actor that corrects its chunks. No torch here."""

import math
import typing
from pathlib import Path

from rrf.config import configclass
from rrf.data.dataset.action_representation import Representation
from rrf.data.dataset.history import Past
from rrf.networks.configs import MLPCfg
from rrf.policies.control.off_policy_configs import SACActorCfg
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg

NORMED_MLP = MLPCfg(
    hidden_features=[256, 256],
    activations=[[("LayerNorm", {}), ("ReLU", {})], [("LayerNorm", {}), ("ReLU", {})], []],
)
"""Layers whose inputs may have any scale, as the features of a backbone have."""


@configclass(builds="rrf.policies.vla.residual:ResidualVLA")
class ResidualVLACfg(PolicyCfg):
    """A frozen policy and an actor that adds a bounded correction to each of its chunks."""

    cameras: list[str] = []
    """Those of the base; filled in with it, like the sizes below."""
    image_size: tuple[int, int] = (0, 0)
    """That of the base."""
    state_dim: int = 0
    """That of the base."""
    action_dim: int = 0
    """That of the base."""
    base: PolicyCfg | None = None
    """The policy whose greedy chunks are corrected. null: that of the checkpoint in `init_from`,
    whatever it is."""
    actor: SACActorCfg = SACActorCfg(backbone_cfg=NORMED_MLP, min_log_std=-5.0, max_log_std=1.0)
    """The actor. It sees the base's features, the state, and the base's chunk."""
    scale: float = 0.25
    """Largest correction of an action, in units of the environment's actions, which lie in
    [-1, 1]."""
    initial_std: float = 0.5
    """At first the correction is `scale` * tanh(x), with x of this standard deviation around 0."""
    persistent_share: float = 0.5
    """Fraction of the noise's variance that is constant during an episode. An episode then explores
    in one direction instead of jittering around the base; the learner does not mind."""
    base_share: float = 0.0
    """Fraction of the training episodes that the base plays alone. The critics then see what no
    correction is worth, also where corrections fail."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.scale <= 2:
            raise ValueError(f"scale is {self.scale}, allowed: above 0, and up to 2")
        if not 0 <= self.persistent_share <= 1:
            raise ValueError(f"persistent_share is {self.persistent_share}, allowed: 0 to 1")
        if not 0 <= self.base_share <= 1:
            raise ValueError(f"base_share is {self.base_share}, allowed: 0 to 1")
        low, high = self.actor.min_log_std, self.actor.max_log_std
        if self.initial_std <= 0 or not low <= math.log(self.initial_std) <= high:
            raise ValueError(
                f"initial_std is {self.initial_std}, allowed: {math.exp(low):.2g} to "
                f"{math.exp(high):.2g} (actor.min_log_std and max_log_std)"
            )
        if self.actor.encoder or self.actor.obs_normalization or self.actor.action_limit != 1:
            raise ValueError(
                "actor has an encoder, obs_normalization or an action_limit other than 1, which "
                "the actor of a residual does not use; leave them out, and set scale instead"
            )
        if isinstance(self.base, Psi0PolicyCfg) and self.base.feature_period > 1:
            raise ValueError(
                f"the policy to correct looks at only one of {self.base.feature_period} chunks "
                "(feature_period), but a residual sees what its base sees each time; split it and "
                "join its parts with --feature-period 1 (rrf models split, join)"
            )

    def over(self, base: PolicyCfg) -> typing.Self:
        """A copy that corrects this policy.

        Raises:
            ValueError: If it is a residual itself.
        """
        if isinstance(base, ResidualVLACfg):
            raise ValueError(
                "the policy to correct has a residual already; give the checkpoint that its own "
                "training started from (init_from in its config.yaml)"
            )
        return self.replace(
            base=base,
            cameras=list(base.cameras),
            image_size=base.image_size,
            state_dim=base.state_dim,
            action_dim=base.action_dim,
            chunk_length=base.chunk_length,
        )

    def require_dims(self) -> None:
        if self.base is None:
            raise ValueError("the policy's base is not known; train it, which fills it in")
        self.base.require_dims()

    def require_one_robot(self) -> None:
        if self.base is not None:
            self.base.require_one_robot()

    @property
    def representation(self) -> Representation:
        """The base's."""
        return self.base.representation if self.base else Representation()

    @property
    def reads_advantage(self) -> bool:
        """The base's."""
        return bool(self.base and self.base.reads_advantage)

    @property
    def past(self) -> Past:
        """The base's."""
        return self.base.past if self.base else Past()

    def rebuild(self, norm_stats: typing.Mapping, checkpoint: Path):
        """Build the policy of a checkpoint, without its weights."""
        self.require_dims()
        assert self.base is not None
        return self.build(norm_stats, self.base.rebuild(norm_stats, checkpoint))
