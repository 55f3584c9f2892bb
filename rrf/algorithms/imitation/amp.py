"""PPO with an adversarial motion prior (AMP), arXiv:2104.02180.

A discriminator learns to tell transitions of reference motions from those of the policy. What it
takes for a reference earns a style reward; PPO learns from

    task_weight * r_task + style_weight * r_style

Rewards are computed with the discriminator that the rollout began with. Then it learns from the
rollout, from a replay of the policy's past transitions, and from the references in equal numbers
(the policy's two halves count as one side). Observations are normalised by their statistics over
rollouts and references. Its losses and rewards are, for lsgan, the paper's equations 5 to 8:

    loss    E_M (D - 1)^2 + E_pi (D + 1)^2 + w_gp / 2 E_M ||grad D||^2
    reward  max(0, 1 - (D - 1)^2 / 4)

and for bce, as in MimicKit:

    loss    (E_M softplus(-D) + E_pi softplus(D)) / 2 + w_gp / 2 (E_M + E_pi) ||grad D||^2
    reward  -log(max(1 - sigmoid(D), 1e-4))

To both is added w_logit times the sum of the squared weights of the output layer. The gradient is
that with respect to normalised transitions.

As in MimicKit, the discriminator has an optimizer of its own. Different from both: it is Adam, and
gradients are clipped.

The transition of an episode's last step leads to the observation in which it really ended; none
leads into the next episode.

Legend: N environments, B transitions, S samples of a rollout, M reference transitions, D
observation width.
"""

import typing

import torch
from torch import nn
from torch.nn.functional import softplus

from rrf.algorithms import distributed
from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.algorithms.off_policy.learner import Means
from rrf.algorithms.on_policy.extension import Extension
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.networks.configs import without_dropout
from rrf.policies.control.normalizer import EmpiricalNormalizer
from rrf.policies.control.state_network import groups_of
from rrf.storage.ring import Ring, draw
from rrf.storage.rollout import ControlStep

_LEAST = 1e-4  # of 1 - sigmoid(D)


class Discriminator(nn.Module):
    """Says of transitions how much they look like the reference motions."""

    def __init__(self, cfg: AMPCfg, width: int):
        super().__init__()
        self.cfg = cfg
        self.network = without_dropout(cfg.discriminator_cfg).build(2 * width, 1)
        self.normalizer = EmpiricalNormalizer(width)

    def normalized(self, pairs_b2d: torch.Tensor) -> torch.Tensor:
        """Transitions (two frames each) as the network reads them, [B, 2 D]."""
        limit = self.cfg.observation_clip
        return self.normalizer(pairs_b2d).clamp(-limit, limit).flatten(1)

    def forward(self, x_bi: torch.Tensor) -> torch.Tensor:
        """The logits of normalised transitions, [B]."""
        return self.network(x_bi).squeeze(-1)

    def rewards(self, x_bi: torch.Tensor) -> torch.Tensor:
        """The style rewards of normalised transitions, [B]."""
        return REWARDS[self.cfg.form](self(x_bi))

    def loss(
        self, real_bi: torch.Tensor, fake_bi: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss on normalised transitions, and metrics.

        Args:
            real_bi: Of the reference motions.
            fake_bi: Of the policy.
        """
        cfg = self.cfg
        real_bi = real_bi.requires_grad_()
        fake_bi = fake_bi.requires_grad_(cfg.form == "bce")
        real, fake = self(real_bi), self(fake_bi)
        penalty = squared_gradients(real, real_bi).mean() / 2
        if cfg.form == "bce":
            penalty = penalty + squared_gradients(fake, fake_bi).mean() / 2
        output = self.network.layers[self.network.output].weight
        loss = LOSSES[cfg.form](real, fake) + cfg.gradient_penalty * penalty
        loss = loss + cfg.logit_penalty * output.square().sum()
        return loss, {
            "loss/discriminator": loss.detach(),
            "amp/gradient_penalty": penalty.detach(),
            "amp/accuracy_reference": (real > 0).float().mean(),
            "amp/accuracy_policy": (fake < 0).float().mean(),
        }


def lsgan_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    return (real - 1).square().mean() + (fake + 1).square().mean()


def bce_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    return (softplus(-real).mean() + softplus(fake).mean()) / 2


def lsgan_reward(logits: torch.Tensor) -> torch.Tensor:
    return (1 - (logits - 1).square() / 4).clamp(min=0)


def bce_reward(logits: torch.Tensor) -> torch.Tensor:
    return -(1 - logits.sigmoid()).clamp(min=_LEAST).log()


def squared_gradients(logits_b: torch.Tensor, x_bi: torch.Tensor) -> torch.Tensor:
    """||dD/dx||^2 of each transition, [B], which can be differentiated again."""
    (gradients,) = torch.autograd.grad(logits_b.sum(), x_bi, create_graph=True)
    return gradients.square().sum(-1)


_Loss = typing.Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Reward = typing.Callable[[torch.Tensor], torch.Tensor]
LOSSES: dict[str, _Loss] = {"lsgan": lsgan_loss, "bce": bce_loss}
REWARDS: dict[str, _Reward] = {"lsgan": lsgan_reward, "bce": bce_reward}


class AMP(PPO):
    """PPO whose extension `style` adds style rewards. Call `style.follow` before the first step."""

    def __init__(self, cfg: AMPCfg, *args, **runtime):
        super().__init__(cfg, *args, **runtime)
        self.extensions["style"] = self.style = Style(cfg, self)

    def slow_down(self, factor: float) -> None:
        super().slow_down(factor)
        self.style.slow_down(self.slowness)

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self.style.slow_down(self.slowness)


class Style(Extension):
    """Mixes the style reward of each transition into its reward."""

    def __init__(self, cfg: AMPCfg, algorithm: PPO):
        """
        Raises:
            ValueError: If the environment does not have the observation group.
        """
        self.cfg, self.generator, self.device = cfg, algorithm.generator, algorithm.device
        dims = algorithm.policy.interface.observation_dims
        groups_of([cfg.observation_group], [], dims, "discriminator")
        width = dims[cfg.observation_group]
        self.discriminator = Discriminator(cfg, width).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.discriminator.network.parameters(),
            lr=cfg.discriminator_learning_rate,
            weight_decay=cfg.weight_decay,
            fused=True,
        )
        self.replay = Ring(cfg.style_replay_size, (2, width), self.device)
        self.reference = torch.empty(0, 2, width, device=self.device)
        self._seen: list[torch.Tensor] = []
        self._rewards: list[torch.Tensor] = []

    def follow(self, clips: list[torch.Tensor]) -> None:
        """Set the reference motions.

        Args:
            clips: The observations of each, float32 [T, D], at the control rate.

        Raises:
            ValueError: If there are none, or for another width.
        """
        width = self.reference.shape[-1]
        for number, frames in enumerate(clips):
            if frames.shape[1] != width:
                raise ValueError(
                    f"reference motion {number} has frames of {frames.shape[1]} numbers, but the "
                    f"observation group '{self.cfg.observation_group}' has {width}"
                )
        pairs = [torch.stack([frames[:-1], frames[1:]], 1) for frames in clips]
        if not sum(map(len, pairs)):
            raise ValueError("there are no reference motions of 2 frames or more to follow")
        self.reference = torch.cat(pairs).to(self.device)
        self.discriminator.normalizer.update(self.reference)

    @torch.no_grad()
    def rewards(self, step: ControlStep, rewards: torch.Tensor) -> torch.Tensor:
        group = self.cfg.observation_group
        after = step.next_observations[group]
        if step.final_observations is not None:
            after = after.clone()
            after[step.dones] = step.final_observations[group]
        pairs = torch.stack([step.observations[group], after], 1)
        style = self.discriminator.rewards(self.discriminator.normalized(pairs))
        self._seen.append(pairs)
        self._rewards.append(style)
        return self.cfg.task_weight * rewards + self.cfg.style_weight * style

    def learn(self) -> dict[str, float]:
        """Train the discriminator; returns means of its metrics and of the style reward."""
        assert len(self.reference), "follow was called"
        cfg, net = self.cfg, self.discriminator
        seen = torch.cat(self._seen)
        style_reward = torch.cat(self._rewards).mean().item()
        self._seen, self._rewards = [], []
        net.normalizer.update(torch.cat([seen, self._references(len(seen))]))
        kept = max(self.replay.room, cfg.replay_samples)
        order = torch.randperm(len(seen), generator=self.generator, device=seen.device)
        self.replay.write(seen[order[:kept]])
        means = Means()
        for _ in range(cfg.discriminator_updates):
            fresh = seen[draw(len(seen), cfg.discriminator_batch_size, self.generator)]
            past = self.replay.sample(cfg.discriminator_batch_size, self.generator)
            real = net.normalized(self._references(cfg.discriminator_batch_size))
            loss, metrics = net.loss(real, net.normalized(torch.cat([fresh, past])))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            distributed.average_gradients(net.network)
            nn.utils.clip_grad_norm_(net.network.parameters(), cfg.discriminator_max_grad_norm)
            self.optimizer.step()
            means.add(metrics)
        metrics = {name: value.item() for name, value in means.averages().items()}
        return metrics | {"amp/style_reward": style_reward}

    def slow_down(self, slowness: float) -> None:
        """Set the discriminator's learning rate to this share of the config's."""
        for group in self.optimizer.param_groups:
            group["lr"] = slowness * self.cfg.discriminator_learning_rate

    def state(self) -> dict[str, torch.Tensor]:
        net, packed = self.discriminator, optimizer_tensors(self.optimizer, self.discriminator)
        tensors = {f"discriminator/{key}": value for key, value in net.state_dict().items()}
        tensors |= {f"optimizer/{key}": value for key, value in packed.items()}
        tensors |= {f"replay/{key}": value for key, value in self.replay.state().items()}
        return tensors | {"reference": self.reference}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """
        Raises:
            ValueError: If the reference motions are not those of the saved run.
        """
        if not torch.equal(tensors["reference"].to(self.device), self.reference):
            raise ValueError(
                "the reference motions changed since the checkpoint was written; restore the "
                "clips, or begin a new run (--no-resume)"
            )
        self.discriminator.load_state_dict(beneath(tensors, "discriminator/"))
        packed = beneath(tensors, "optimizer/")
        restore_optimizer(self.optimizer, self.discriminator, packed)
        self.replay.load_state(beneath(tensors, "replay/"))
        self._seen, self._rewards = [], []

    def _references(self, count: int) -> torch.Tensor:
        return self.reference[draw(len(self.reference), count, self.generator)]
