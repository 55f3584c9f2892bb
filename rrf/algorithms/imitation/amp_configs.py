"""The config of adversarial motion priors. This file does not import torch."""

import typing

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.config import configclass, require_at_least_one, require_not_negative, require_positive
from rrf.networks.configs import MLPCfg, plain_mlp


@configclass(builds="rrf.algorithms.imitation.amp:AMP")
class AMPCfg(PPOCfg):
    """PPO with an adversarial motion prior (arXiv:2104.02180): a discriminator between transitions
    of reference motions and of the policy gives a reward for style."""

    form: typing.Literal["lsgan", "bce"] = "lsgan"
    """lsgan: least squares, and a reward from 0 to 1, as in the paper. bce: cross-entropy, and the
    reward -log(1 - sigmoid(D)), as in MimicKit."""
    task_weight: float = 0.5
    """Weight of the environment's reward."""
    style_weight: float = 0.5
    """Weight of the style reward. The environment's rewards may be of another size: mjlab's are
    multiplied by the length of a step, 0.02 s."""
    observation_group: str = "amp"
    """The observation group whose transitions the discriminator sees."""
    discriminator_cfg: MLPCfg = plain_mlp([512, 256], "ReLU")
    """Architecture of the discriminator."""
    discriminator_learning_rate: float = 1e-4
    """Learning rate of the discriminator's Adam."""
    discriminator_max_grad_norm: float = 1.0
    """The gradient of the discriminator is scaled down to this norm where it is longer."""
    discriminator_updates: int = 8
    """Gradient steps of the discriminator per rollout."""
    discriminator_batch_size: int = 1024
    """Transitions per gradient step from the rollout, as many from the replay, and as many from the
    reference motions."""
    gradient_penalty: float = 10.0
    """Weight of the discriminator's squared gradient. lsgan: half of it is applied, in transitions
    of the reference motions. bce: it is applied to the mean over both sides."""
    logit_penalty: float = 0.01
    """Weight of the sum of the squared weights of the discriminator's output layer."""
    weight_decay: float = 1e-4
    """Weight decay of the discriminator."""
    observation_clip: float = 10.0
    """Bound on the normalised observations of the discriminator."""
    style_replay_size: int = 200_000
    """Number of the policy's past transitions to keep."""
    replay_samples: int = 1000
    """Number of transitions of each rollout that replace old ones. While there is room, all are
    kept."""

    def __post_init__(self):
        super().__post_init__()
        names = ("task_weight", "style_weight", "gradient_penalty", "logit_penalty", "weight_decay")
        require_not_negative(self, *names)
        require_positive(
            self,
            "discriminator_learning_rate",
            "discriminator_max_grad_norm",
            "observation_clip",
            "style_weight",
        )
        require_at_least_one(
            self,
            "discriminator_updates",
            "discriminator_batch_size",
            "style_replay_size",
            "replay_samples",
        )
