"""PPO with an adversarial motion prior (AMP), arXiv:2104.02180.

A discriminator learns to tell transitions of reference motions from those of the policy. What it
takes for a reference earns a style reward; PPO learns from

    task_weight * r_task + style_weight * r_style

Rewards are computed with the discriminator that the rollout began with. Then it learns from the
rollout, from a replay of the policy's past transitions, and from the references in equal numbers
(the policy's two halves count as one side). Observations are normalised by their statistics over
rollouts and references.

As in MimicKit, the discriminator has an optimizer of its own. Different from both: it is Adam, and
gradients are clipped.

The transition of an episode's last step leads to the observation in which it really ended; none
leads into the next episode.

Legend: N environments, S samples of a rollout, M reference transitions, D observation width.
"""

import torch
from torch import nn

from rrf.algorithms import distributed
from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.algorithms.imitation.amp_discriminator import Discriminator
from rrf.algorithms.off_policy.learner import Means
from rrf.algorithms.on_policy.extension import Extension
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.policies.control.state_network import groups_of
from rrf.storage.ring import Ring, draw
from rrf.storage.rollout import ControlStep


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
        found = {name: value.item() for name, value in means.found().items()}
        return found | {"amp/style_reward": style_reward}

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
