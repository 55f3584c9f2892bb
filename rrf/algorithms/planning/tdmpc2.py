"""TD-MPC2, arXiv:2310.16828: a latent world model, learned from sequences, that plans.

With z_0 = h(s_0), z_{t+1} = d(z_t, a_t), the model and its critics minimise, summed over the H
steps of a sequence with weights rho^t / H (equation 3):

    20 |z_{t+1} - sg h(s_{t+1})|^2 + 0.1 CE(R(z_t, a_t), r_t) + 0.1 mean_k CE(Q_k(z_t, a_t), y_t)
    y_t = r_t + gamma (1 - terminated) min of two Q'(h(s_{t+1}), pi(h(s_{t+1})))

and the policy -Q(z_t, pi(z_t)) / scale - 1e-4 H(pi) (equation 4). The scale is a running range of
values. Steps, losses and constants are those of the official code, with its termination head: plans
stop to earn rewards where the model predicts that the episode terminates. A time limit ends a
sequence, but not the return. What differs:

* Dropout sets a fixed number of outputs to 0, drawn with replacement. It acts while the critics
  learn; in the official code also in the policy's loss.
* Of the critics, only the two that were drawn are computed where two are used.
* The gradient steps that follow the warm-up are spread over some environment steps, so that a run
  can be stopped meanwhile.
* One task, observations of states only.

Legend: H steps of a sequence, B sequences, O observation width, D latent width, A action width,
K critics, N environments.
"""

import copy
import dataclasses
import functools
import typing
from collections.abc import Iterator

import torch
from tensordict import TensorDict
from torch import nn
from torch.nn import functional

from rrf.algorithms.cuda_graphs import Replayed
from rrf.algorithms.off_policy.learner import OffPolicyLearner, polyak
from rrf.algorithms.planning.configs import TDMPC2Cfg
from rrf.policies.control.mppi import PlanNoise
from rrf.policies.control.state_network import forget
from rrf.policies.control.world_model import Critics, WorldModel
from rrf.precision import autocast, is_bf16
from rrf.storage.replay import RowLayout, SliceReplay, Transitions
from rrf.storage.rollout import ControlStep

_MOST_UPDATES = 20  # in one call of `update`
_ACTOR_EPS = 1e-5  # of Adam
_QUANTILES = (0.05, 0.95)


@dataclasses.dataclass
class Sequences:
    """The sequences that one gradient step learns from."""

    observations: torch.Tensor  # [H + 1, B, O]
    actions: torch.Tensor  # [H, B, A], in units of the action limit
    rewards: torch.Tensor  # [H, B]
    terminated: torch.Tensor  # [H, B], 1.0 where the task ended with the step


@dataclasses.dataclass
class Noise:
    """The random numbers of one gradient step."""

    next_actions: torch.Tensor  # [H B, A], standard normal, for actions in the next states
    actions: torch.Tensor  # [(H + 1) B, A], standard normal, for the policy's loss
    pairs: torch.Tensor  # int64 [2, 2], critics of the targets and of the policy's loss
    dropped: torch.Tensor | None  # int64, see `Critics.forward`


class TDMPC2(OffPolicyLearner):
    """Metrics are loss/consistency, loss/reward, loss/value, loss/termination, loss/actor,
    value/mean, value/scale, gradient/norm."""

    cfg: TDMPC2Cfg

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.optimizers["actor"].param_groups[0]["eps"] = _ACTOR_EPS

    def build(self) -> None:
        self.model: WorldModel = self.policy.actor
        self.model.discount.fill_(self.cfg.gamma)
        self.target_critics: Critics = frozen(self.model.critics)
        self.scale = torch.ones((), device=self.device)
        self.plans = self.model.initial_memory(self.num_envs)
        self.planner = self.model
        if is_bf16(self.cfg.precision, self.device):
            self.planner = self.slow_copy(self.model)
            for parameter in self.planner.parameters():
                parameter.data = parameter.data.bfloat16()
        self.horizon = self.model.cfg.planner.horizon
        self.weights = self.cfg.rho ** torch.arange(self.horizon + 1.0, device=self.device)
        self.quantiles = torch.tensor(_QUANTILES, device=self.device)
        self.make_plans = Replayed(self._make_plans)
        self._forget_recordings()

    def check_policy(self) -> None:
        if not isinstance(self.policy.actor, WorldModel):
            raise ValueError(
                f"{type(self).__name__} needs a world model; use policy=components."
                "WorldModelPackCfg()"
            )

    def learners(self) -> dict[str, tuple[nn.Module, float]]:
        cfg, model = self.cfg, self.model
        return {
            "actor": (model.prior, cfg.actor_lr),
            "encoder": (model.encoder, cfg.critic_lr * cfg.encoder_lr_scale),
        } | {name: (part, cfg.critic_lr) for name, part in self._predictors().items()}

    def make_replay(self, layout: RowLayout, size: int, memory_gib: float | None) -> SliceReplay:
        return SliceReplay(layout, size, self.num_envs, self.device, memory_gib)

    # ------------------------------------------------------------------ the three verbs

    @torch.no_grad()
    def act(self, observations: TensorDict) -> torch.Tensor:
        """Actions [N, A]: uniformly random while warming up, then the first ones of plans."""
        if self.is_warming_up:
            return self.random_actions()
        x = self.model.read(observations).to(self.device)
        noise = self.model.draw_noise(self.num_envs, self.generator)
        actions, self.plans = self.make_plans(x, self.plans, noise)
        return actions

    def _make_plans(
        self, x_no: torch.Tensor, plans: torch.Tensor, noise: PlanNoise
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.planner is not self.model:  # faster than casting the weights for each product
            copies: list[torch.Tensor] = list(self.planner.parameters())
            originals: list[torch.Tensor] = list(self.model.parameters())
            torch._foreach_copy_(copies, originals)
        return self.planner.act(x_no, plans, False, noise)

    @torch.no_grad()
    def observe(self, step: ControlStep) -> None:
        """Record the outcome of the last actions.

        Raises:
            ValueError: If the task terminates, but the model does not predict terminations.
        """
        if self.model.terminations is None and bool((step.dones & ~step.time_outs).any()):
            raise ValueError(
                "an episode terminated, but the world model does not predict terminations; set "
                "policy.actor_cfg.predicts_termination=true"
            )
        was_warming_up = self.is_warming_up
        super().observe(step)
        self.plans = forget(self.plans, step.dones)
        if was_warming_up and not self.is_warming_up:
            self._updates_due += self.cfg.pretraining_updates

    def update(self) -> dict[str, torch.Tensor]:
        """Make the gradient steps that are due, but not too many at once; see `make_updates`."""
        count = min(int(self._updates_due), _MOST_UPDATES)
        self._updates_due -= count
        return self.make_updates(count)

    def as_row(self, step: ControlStep) -> dict[str, torch.Tensor]:
        """See `OffPolicyLearner.as_row`. The model also learns where terminations lead."""
        row = super().as_row(step)
        if step.final_observations is not None:
            row["next_observations"] = row["next_observations"].clone()
            row["next_observations"][step.dones] = self.joined(step.final_observations)
        return row

    def batches(self, count: int) -> Iterator[tuple[Sequences, Noise]]:
        for _ in range(count):
            size = self.cfg.batch_size
            steps = self.replay.sample_slices(self.horizon, size, self.generator)
            yield self.sequences(steps), self.draw_noise(size)

    def sequences(self, steps: Transitions) -> Sequences:
        """The sequences that consecutive transitions [H, B] form."""
        return Sequences(
            torch.cat([steps.actor_obs, steps.next_actor_obs[-1:]]),
            steps.actions / self.model.action_limit,
            steps.rewards,
            steps.terminated,
        )

    def draw_noise(self, size: int) -> Noise:
        """The random numbers of a gradient step on `size` sequences."""
        model, count = self.model, (2 * self.horizon + 1) * size
        normal = torch.empty(count, model.num_actions, device=self.device)
        next_actions, actions = normal.normal_(generator=self.generator).split(
            [self.horizon * size, (self.horizon + 1) * size]
        )
        critics, device = model.critics.num_copies, self.device
        orders = [
            torch.randperm(critics, generator=self.generator, device=device) for _ in range(2)
        ]
        outputs = critics * self.horizon * size * model.critics.first_width
        dropped = None
        if self.cfg.dropout:
            shape = (round(self.cfg.dropout * outputs),)
            dropped = torch.randint(outputs, shape, generator=self.generator, device=device)
        return Noise(next_actions, actions, torch.stack(orders)[:, :2], dropped)

    def precision(self) -> typing.ContextManager:
        """See `OffPolicyLearner.precision`. A pass uses some networks once per step of a plan."""
        return autocast(self.cfg.precision, self.device, keeps_weights=True)

    # ------------------------------------------------------------------ one gradient step

    def learn(self, batch: Sequences, noise: Noise) -> dict[str, torch.Tensor]:
        """One gradient step of the model and its critics, then of the policy."""
        self.num_updates += 1
        return self._steps[self.num_updates % self.cfg.policy_delay == 0](batch, noise)

    def _step(self, batch: Sequences, noise: Noise, learns_policy: bool) -> dict[str, torch.Tensor]:
        cfg, model = self.cfg, self.model
        next_z, targets = self.targets(batch, noise)
        with self.precision():
            states, terms = self.errors(batch, noise, next_z, targets)
        loss = (
            cfg.consistency_coef * terms["loss/consistency"]
            + cfg.reward_coef * terms["loss/reward"]
            + cfg.value_coef * terms["loss/value"]
        )
        if model.terminations is not None:
            loss = loss + cfg.termination_coef * terms["loss/termination"]
        metrics = {name: value.detach() for name, value in terms.items()}
        metrics["gradient/norm"] = self._step_model(loss)
        if learns_policy:
            with self.precision():
                of_actor = self.policy_objective(states.detach(), noise)
            self.step(of_actor, "actor")
            metrics |= {"loss/actor": of_actor.detach(), "value/scale": self.scale.clone()}
            for slow, fast in self.slow_copies():
                polyak(slow, fast, cfg.tau)
        return metrics

    @torch.no_grad()
    def targets(self, batch: Sequences, noise: Noise) -> tuple[torch.Tensor, torch.Tensor]:
        """The latent states [H, B, D] that steps led to, and the targets [H B] of the critics."""
        model = self.model
        with self.precision():
            next_z = model.encode_state(batch.observations[1:])
            flat = next_z.flatten(0, 1)
            actions, _ = model.policy(flat, noise.next_actions)
            q = model.pair_values(self.target_critics, flat, actions, noise.pairs[0]).amin(0)
        goes_on = 1 - batch.terminated.flatten()
        return next_z, batch.rewards.flatten() + self.cfg.gamma * goes_on * q

    def errors(
        self, batch: Sequences, noise: Noise, next_z: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The latent states [H + 1, B, D] that the model predicts, and the terms of its loss."""
        model, weights = self.model, self.weights[:-1]
        states = [model.encode_state(batch.observations[0])]
        for a_ba in batch.actions:
            states.append(model.dynamics(torch.cat([states[-1], a_ba], -1)))
        z = torch.stack(states)
        inputs = torch.cat([z[:-1], batch.actions], -1).flatten(0, 1)
        q = model.critics(inputs, noise.dropped)
        shape = batch.rewards.shape
        of_reward = model.errors(model.rewards(inputs), batch.rewards.flatten()).view(shape)
        of_value = model.errors(q, targets).mean(0).view(shape)
        of_state = (z[1:] - next_z).square().mean((1, 2))
        terms = {
            "loss/consistency": (weights * of_state).mean(),
            "loss/reward": (weights * of_reward.mean(1)).mean(),
            "loss/value": (weights * of_value.mean(1)).mean(),
            "value/target": targets.mean(),
        }
        if model.terminations is not None:
            terms["loss/termination"] = functional.binary_cross_entropy_with_logits(
                model.terminations(z[1:]).squeeze(-1), batch.terminated
            )
        return z, terms

    def policy_objective(self, z_hbd: torch.Tensor, noise: Noise) -> torch.Tensor:
        """The loss of the policy in predicted states; updates the scale of values."""
        cfg = self.cfg
        z = z_hbd.flatten(0, 1)
        actions, entropy = self.model.policy(z, noise.actions)
        q = self.model.values(z, actions, noise.pairs[1]).view(z_hbd.shape[:2])
        if cfg.scales_values:
            self.update_scale(q[0].detach())
        gains = q / self.scale + cfg.entropy_coef * entropy.view_as(q)
        return -(self.weights * gains.mean(1)).mean()

    def update_scale(self, values: torch.Tensor) -> None:
        """Move the scale towards the range of new values [B], which is at least 1."""
        low, high = values.quantile(self.quantiles)
        self.scale.lerp_((high - low).clamp(min=1), self.cfg.tau)

    def _step_model(self, loss: torch.Tensor) -> torch.Tensor:
        """A gradient step of everything but the policy; returns the norm of the gradient."""
        parts = {"encoder": self.model.encoder, **self._predictors()}
        parameters = [parameter for part in parts.values() for parameter in part.parameters()]
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        if self.cfg.max_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.cfg.max_grad_norm, norm, foreach=True)
        for name in parts:
            self.optimizers[name].step()
        return norm

    def _predictors(self) -> dict[str, nn.Module]:
        """The parts of the model that read latent states, except the policy."""
        model = self.model
        parts = {"dynamics": model.dynamics, "rewards": model.rewards, "critics": model.critics}
        if model.terminations is not None:
            parts["terminations"] = model.terminations
        return parts

    # ------------------------------------------------------------------ state

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield self.target_critics, self.model.critics

    def _slow_modules(self) -> Iterator[tuple[str, nn.Module]]:
        for slow, fast in self.slow_copies():
            yield ("target_critics" if fast is self.model.critics else "target_encoder"), slow

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        return tensors | {"scale": self.scale.clone(), "plans": self.plans.clone()}, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self.scale.copy_(tensors["scale"])
        self.plans = tensors["plans"].to(self.device)

    def set_slowness(self, factor: float) -> None:
        super().set_slowness(factor)
        self._forget_recordings()

    def _forget_recordings(self) -> None:
        """Record gradient steps anew: rates or the tensors of an optimizer have changed."""
        self._steps = {
            learns_policy: Replayed(functools.partial(self._step, learns_policy=learns_policy))
            for learns_policy in (False, True)
        }

    def episodes_cut(self) -> None:
        super().episodes_cut()
        self.plans.zero_()

    def follow_policy(self) -> None:
        """See `OffPolicyLearner.follow_policy`. Other weights may come with another discount."""
        super().follow_policy()
        for model in (self.model, self.planner):
            model.discount.fill_(self.cfg.gamma)


def frozen(network: typing.Any) -> typing.Any:
    """A copy that is not trained."""
    return copy.deepcopy(network).requires_grad_(False)
