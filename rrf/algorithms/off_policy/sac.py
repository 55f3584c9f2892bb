"""Soft actor-critic, arXiv:1812.05905: twin critics, squashed Gaussian, learned temperature.

The order of a gradient step is that of Stable-Baselines3: temperature, critics, policy (judged by
the critics just updated), slow copies. A slow copy is a target network. All critics together are
one batched matrix product per layer. Targets are computed without gradients. Nothing in a gradient
step waits for a device.

Variants override `critic_objective`, or the methods under "passes through the networks".

Legend: N environments, B batch, K critics, O observation width, D feature width, A action width.
"""

import copy
import dataclasses
import typing
from collections.abc import Iterator

import torch
from tensordict import TensorDict
from torch import nn

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.off_policy.losses import alpha_loss, critic_loss, policy_loss, soft_target
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.algorithms.precision import autocast
from rrf.policies.control.actor_q import ActorQ
from rrf.policies.control.off_policy_actors import SACActor
from rrf.storage.replay import Replay, RowLayout, Transitions
from rrf.storage.rollout import ControlStep


@dataclasses.dataclass
class Noise:
    """The standard normal noise of one gradient step."""

    actions: torch.Tensor  # [B, A], for actions in the states of the batch
    next_actions: torch.Tensor  # [B, A], for actions in the next states
    returns: torch.Tensor  # [K, B], for samples from the distributions of returns


@dataclasses.dataclass
class Batch:
    """The transitions that one gradient step learns from."""

    steps: Transitions  # [B]
    discounts: torch.Tensor  # [B], weight of the next state's value; 0 after a termination


class Temperature(nn.Module):
    """The weight of the entropy in the objective, stored as its logarithm."""

    def __init__(self, alpha: float):
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(alpha).log())


class SAC:
    """Call `act`, `observe` and `update` for every step of the environments."""

    def __init__(
        self,
        cfg: SACCfg,
        policy: ActorQ,
        num_envs: int,
        replay_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        replay_memory_gib: float | None = None,
    ):
        """
        Args:
            policy: Trained in place.
            replay_size: Number of transitions that the replay holds.
            generator: Samples actions, batches and noise; on `device`.
            replay_memory_gib: Upper limit of the replay's memory; None for no limit.

        Raises:
            ValueError: If the policy does not fit the algorithm, or if the replay does not fit into
                memory.
        """
        self.cfg, self.policy, self.num_envs = cfg, policy, num_envs
        self.generator, self.device = generator, torch.device(device)
        self.check_policy()
        self.target_critic = self.slow_copy(policy.critic)
        self.temperature = Temperature(cfg.init_alpha).to(self.device)
        entropy = cfg.target_entropy
        self.target_entropy = -float(policy.actor.num_actions) if entropy is None else entropy
        self.optimizers = {
            "actor": self._optimizer(policy.actor, cfg.actor_lr),
            "critic": self._optimizer(policy.critic, cfg.critic_lr),
            "alpha": self._optimizer(self.temperature, cfg.alpha_lr),
        }
        critic_width = None if policy.critic.groups == policy.actor.groups else policy.critic.width
        layout = RowLayout(policy.actor.width, critic_width, policy.actor.num_actions)
        self.replay: typing.Any = self.make_replay(layout, replay_size, replay_memory_gib)
        self.num_observed = self.num_updates = 0
        self._due = 0.0  # gradient steps still to be made
        self.slowness = 1.0  # factor on the configured learning rates

    def check_policy(self) -> None:
        """Raise ValueError if this algorithm cannot train the policy's kind of networks."""
        for name in ("actor", "critic"):
            if getattr(self.policy, name).memory is not None:
                raise ValueError(
                    f"policy.{name}_cfg.encoder is set, but {type(self).__name__} learns from "
                    "single transitions; use algorithms.SACSeqCfg or algorithms.SACTransCfg"
                )

    def make_replay(self, layout: RowLayout, size: int, memory_gib: float | None) -> typing.Any:
        """Build an empty replay."""
        return Replay(layout, size, self.num_envs, self.device, memory_gib)

    @classmethod
    def construct_algorithm(cls, obs: TensorDict, env: typing.Any, cfg: dict, device: str):
        """Called by rsl_rl's runners. They collect rollouts, so this raises ValueError."""
        raise ValueError(
            f"{cls.__name__} is off-policy and rsl_rl's runners cannot train it; use `rrf train`"
        )

    # ------------------------------------------------------------------ the three verbs

    @torch.no_grad()
    def act(self, observations: TensorDict) -> torch.Tensor:
        """Actions [N, A]: uniformly random while warming up, then sampled from the policy."""
        actor = self.policy.actor
        if self.is_warming_up:
            return self.random_actions()
        outputs, _ = actor.step(actor.read(observations), None)
        return actor.distribution(outputs).sample(self.generator)

    @torch.no_grad()
    def observe(self, step: ControlStep) -> None:
        """Record the outcome of the last actions."""
        self.replay.write(**self.as_row(step))
        self._count()

    def update(self) -> dict[str, torch.Tensor]:
        """Make the gradient steps that are due.

        Returns:
            Means over these steps, as 0-d tensors on the device: loss/critic, loss/actor,
            loss/alpha, policy/entropy, policy/alpha, value/mean. Empty during warm-up.
        """
        count = int(self._due)
        self._due -= count
        sums: dict[str, torch.Tensor] = {}
        counts: dict[str, int] = {}
        for batch, noise in self.batches(count):
            for name, value in self.learn(batch, noise).items():
                sums[name] = sums[name] + value if name in sums else value
                counts[name] = counts.get(name, 0) + 1
        return {name: value / counts[name] for name, value in sums.items()}

    @property
    def is_warming_up(self) -> bool:
        """Whether actions are still random and no gradient steps are made yet."""
        return self.num_observed < self.cfg.warmup_steps

    def random_actions(self) -> torch.Tensor:
        """Uniformly random actions within the limits, [N, A]."""
        actor = self.policy.actor
        actions = torch.empty(self.num_envs, actor.num_actions, device=self.device)
        return actions.uniform_(-actor.action_limit, actor.action_limit, generator=self.generator)

    def as_row(self, step: ControlStep) -> dict[str, torch.Tensor]:
        """The entries of a step in the replay. This also updates the normalisers."""
        observations = self.joined(step.observations)
        next_observations = self.joined(step.next_observations)
        if step.final_observations is not None:
            next_observations = next_observations.clone()
            next_observations[step.dones] = self.joined(step.final_observations)
        # The observation after a termination is never used, and physics may have diverged there.
        terminated = step.dones & ~step.time_outs
        next_observations = torch.where(terminated.unsqueeze(-1), observations, next_observations)
        for network, part in (
            (self.policy.actor, observations[:, : self.policy.actor.width]),
            (self.policy.critic, observations[:, -self.policy.critic.width :]),
        ):
            if network.normalizer is not None:
                network.normalizer.update(part)
        return {
            "observations": observations,
            "actions": step.actions,
            "rewards": step.rewards,
            "terminated": terminated,
            "ended": step.dones,
            "next_observations": next_observations,
        }

    def joined(self, observations: TensorDict) -> torch.Tensor:
        """The observations that actor and critic read, [N, O]; only once if they read the same."""
        actor, critic = self.policy.actor, self.policy.critic
        x = actor.read(observations).to(self.device)
        if critic.groups == actor.groups:
            return x
        return torch.cat([x, critic.read(observations).to(self.device)], -1)

    def batches(self, count: int) -> Iterator[tuple[typing.Any, Noise]]:
        """The batches of `count` gradient steps, sampled and gathered all at once."""
        if not count:
            return
        cfg, size = self.cfg, self.cfg.batch_size
        rows = self.replay.sample((count * size,), self.generator)
        steps, discounts = self.replay.gather_n_step(rows, cfg.n_steps, cfg.gamma)
        noise = self.draw_noise(count, size)
        for k in range(count):
            part = slice(k * size, (k + 1) * size)
            layout = self.replay.layout
            yield Batch(Transitions(steps.rows[part], layout), discounts[part]), next(noise)

    def draw_noise(self, count: int, size: int) -> Iterator[Noise]:
        """The noise of `count` gradient steps on `size` states each."""
        width = self.policy.actor.num_actions
        numbers = torch.empty(count, 2, size, width, device=self.device)
        numbers.normal_(generator=self.generator)
        returns = torch.empty(count, self.num_return_samples, size, device=self.device)
        returns.normal_(generator=self.generator)
        for actions, of_returns in zip(numbers, returns, strict=True):
            yield Noise(actions[0], actions[1], of_returns)

    num_return_samples = 0
    """Number of critics whose distributions of returns are sampled."""

    # ------------------------------------------------------------------ one gradient step

    sees_updated_critic = True
    """Whether the policy's loss uses the critics after their gradient step, or before it."""

    @property
    def learns_policy(self) -> bool:
        """Whether policy and temperature learn already, or only the critics."""
        return True

    def learn(self, batch: typing.Any, noise: Noise) -> dict[str, torch.Tensor]:
        """One gradient step of the critics and, if it is due, of everything else."""
        cfg = self.cfg
        is_due = self.num_updates % cfg.policy_delay == 0
        moves_policy = is_due and self.learns_policy
        alpha = self.temperature.log_alpha.detach().exp()
        outputs, next_outputs = self.actor_pass(batch, moves_policy)
        with torch.no_grad():
            next_policy = self.policy.actor.distribution(next_outputs)
            next_actions, next_log_prob = next_policy.sample_with_log_prob(noise.next_actions)
        loss, metrics = self.critic_objective(batch, next_actions, next_log_prob, alpha, noise)
        self._backward(loss, "critic")
        if self.sees_updated_critic:
            self.optimizers["critic"].step()
        if moves_policy:
            assert outputs is not None
            metrics |= self._policy_gradients(batch, outputs, noise, alpha)
        if not self.sees_updated_critic:
            self.optimizers["critic"].step()
        if moves_policy:
            self.optimizers["actor"].step()
            if cfg.learn_alpha:
                self.optimizers["alpha"].step()
        if is_due:
            for slow, fast in self.slow_copies():
                polyak(slow, fast, cfg.tau)
        self.num_updates += 1
        return metrics

    def critic_objective(
        self,
        batch: typing.Any,
        next_actions: torch.Tensor,
        next_log_prob: torch.Tensor,
        alpha: torch.Tensor,
        noise: Noise,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The critics' loss, and metrics to log."""
        with torch.no_grad():
            with self.precision():
                next_q = self.target_critic(self.target_features(batch), next_actions)
            target = soft_target(
                batch.steps.rewards, batch.discounts, next_q.amin(0), next_log_prob, alpha
            )
        with self.precision():
            q = self.policy.critic(self.critic_features(batch), batch.steps.actions)
        loss = critic_loss(q, target)
        return loss, {"loss/critic": loss.detach(), "value/mean": q.detach().mean()}

    def _policy_gradients(
        self, batch: typing.Any, outputs: torch.Tensor, noise: Noise, alpha: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Compute the gradients of policy and temperature; returns metrics to log."""
        policy = self.policy.actor.distribution(outputs)
        actions, log_prob = policy.sample_with_log_prob(noise.actions)
        with torch.no_grad():
            features = self.critic_features(batch)
        with self.precision():
            q = self.policy.critic(features, actions)
        loss = policy_loss(log_prob, q, alpha)
        self._backward(loss, "actor")
        of_alpha = alpha_loss(self.temperature.log_alpha, log_prob, self.target_entropy)
        if self.cfg.learn_alpha:
            self._backward(of_alpha, "alpha")
        return {
            "loss/actor": loss.detach(),
            "loss/alpha": of_alpha.detach(),
            "policy/entropy": -log_prob.detach().mean(),
            "policy/alpha": alpha,
        }

    def _backward(self, loss: torch.Tensor, name: str) -> None:
        """Set the gradients of one learner only: the policy's loss gives the critics none."""
        parameters = self.optimizers[name].param_groups[0]["params"]
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            parameter.grad = gradient
        if self.cfg.max_grad_norm is not None and name != "alpha":
            nn.utils.clip_grad_norm_(parameters, self.cfg.max_grad_norm, foreach=True)

    # ------------------------------------------------------------------ passes through the networks

    def precision(self) -> typing.ContextManager:
        """A context for one pass; a weight cast without gradient is no use to a pass with one."""
        return autocast(self.cfg.precision, self.device)

    @property
    def next_actor(self) -> SACActor:
        """The actor that chooses the actions in the next states."""
        return self.policy.actor

    def actor_pass(
        self, batch: typing.Any, needs_gradient: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The actor's outputs in the states of the batch and in the next states, each [B, 2A].

        The former are None without `needs_gradient`. The latter have no gradient.
        """
        with torch.no_grad(), self.precision():
            after = self.next_actor(batch.steps.next_actor_obs)
        if not needs_gradient:
            return None, after
        with self.precision():
            return self.policy.actor(batch.steps.actor_obs), after

    def critic_features(self, batch: typing.Any) -> torch.Tensor:
        """The critics' features of the states of the batch, [B, D]."""
        return self.policy.critic.normalized(batch.steps.critic_obs)

    def target_features(self, batch: typing.Any) -> torch.Tensor:
        """The slow copies' features of the next states, [B, D]."""
        return self.target_critic.normalized(batch.steps.next_critic_obs)

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Pairs of a slow copy and the network that it follows."""
        yield self.target_critic, self.policy.critic

    def slow_copy(self, network: typing.Any) -> typing.Any:
        """A copy that is not trained. It shares the normaliser, if the network has one."""
        normalizer, network.normalizer = network.normalizer, None
        slow = copy.deepcopy(network).requires_grad_(False)
        slow.normalizer = network.normalizer = normalizer
        return slow

    # ------------------------------------------------------------------ state

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The named tensors and plain data that `load_state` needs besides the policy's weights."""
        tensors, replay_facts = self.replay.state()
        tensors = {f"replay/{name}": value for name, value in tensors.items()}
        tensors["log_alpha"] = self.temperature.log_alpha.detach().clone()
        for name, module in self._slow_modules():
            weights = {key: value.clone() for key, value in module.named_parameters()}
            tensors |= {f"{name}/{key}": value.detach() for key, value in weights.items()}
        for name, module in self._learners():
            packed = optimizer_tensors(self.optimizers[name], module)
            tensors |= {f"optimizer/{name}/{key}": value.clone() for key, value in packed.items()}
        facts = {
            "replay": replay_facts,
            "num_observed": self.num_observed,
            "num_updates": self.num_updates,
            "due": self._due,
            "slowness": self.slowness,
        }
        return tensors, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` returned."""
        self.replay.load_state(beneath(tensors, "replay/"), facts["replay"])
        with torch.no_grad():
            self.temperature.log_alpha.copy_(tensors["log_alpha"])
            for name, module in self._slow_modules():
                kept = beneath(tensors, f"{name}/")
                for key, parameter in module.named_parameters():
                    parameter.copy_(kept[key])
        for name, module in self._learners():
            restore_optimizer(self.optimizers[name], module, beneath(tensors, f"optimizer/{name}/"))
        self.num_observed, self.num_updates = facts["num_observed"], facts["num_updates"]
        self._due = facts["due"]
        self.set_slowness(facts["slowness"])

    def episodes_cut(self) -> None:
        """End the running episodes. Called when the environments were reset between steps."""
        self.replay.cut()

    def follow_policy(self) -> None:
        """Copy the policy's weights to its slow copies; called after the weights were replaced."""
        for slow, fast in self.slow_copies():
            polyak(slow, fast, 1.0)

    def slow_down(self, factor: float) -> None:
        """Multiply the learning rates by `factor` from now on."""
        self.set_slowness(self.slowness * factor)

    def set_slowness(self, factor: float) -> None:
        """Set the factor on the configured learning rates."""
        self.slowness, cfg = factor, self.cfg
        rates = {"actor": cfg.actor_lr, "critic": cfg.critic_lr, "alpha": cfg.alpha_lr}
        for name, rate in rates.items():
            self.optimizers[name].param_groups[0]["lr"] = rate * factor

    def _learners(self) -> Iterator[tuple[str, nn.Module]]:
        yield "actor", self.policy.actor
        yield "critic", self.policy.critic
        yield "alpha", self.temperature

    def _slow_modules(self) -> Iterator[tuple[str, nn.Module]]:
        for slow, fast in self.slow_copies():
            yield ("target_critic" if fast is self.policy.critic else "target_actor"), slow

    def _count(self) -> None:
        if not self.is_warming_up:
            self._due += self.num_envs * self.cfg.updates_per_step
        self.num_observed += self.num_envs

    def _optimizer(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(list(module.parameters()), lr=learning_rate, fused=True)


@torch.no_grad()
def polyak(slow: nn.Module, fast: nn.Module, tau: float) -> None:
    """slow <- (1 - tau) slow + tau fast, for all parameters."""
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), tau)
