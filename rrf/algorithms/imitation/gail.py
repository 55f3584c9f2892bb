"""Generative adversarial imitation learning (GAIL), arXiv:1606.03476, as a variant of PPO.

After each rollout, a discriminator D first learns to tell the rollout's transitions from those of
the expert:

    L = -E_expert[log D] - E_policy[log(1 - D)] + w E[(||grad f(x)|| - 1)^2],   D = sigmoid(f)

x lies at random between a transition of the expert and one of the policy (arXiv:1704.00028). Inputs
are normalised with the statistics of all transitions so far, the expert's and the policy's. PPO
then learns from the rollout with D's reward in place of the task's, which it never sees:

    r = -log(1 - D),  or AIRL's  r = log D - log(1 - D)                         (arXiv:1710.11248)

Absorbing states (DAC, arXiv:1809.02925): an episode that the task terminates goes on for ever in a
state s_a. Its last transition earns gamma / (1 - gamma) r(s_a) in addition. Each terminated episode
counts as one transition of s_a. With the share f of such transitions, D(s_a) = f_E / (f_E + f_pi)
minimises the discriminator's loss. Without this, a positive reward makes long episodes pay whatever
the expert did, and a negative one short ones.

Different from the papers: PPO instead of TRPO, and a gradient penalty. D sees actions as the task
takes them, within [-1, 1]. In DAC, D is a network in s_a, too; here the gradient penalty would keep
it from telling s_a from other states.

Legend: T time, N environments, B batch, M transitions of the expert, S of the policy, O observation
width, A action width, I inputs of the discriminator.
"""

import dataclasses

import torch
from tensordict import TensorDict
from torch import nn
from torch.nn import functional

from rrf.algorithms import distributed
from rrf.algorithms.imitation.configs import DiscriminatorCfg, GAILCfg
from rrf.algorithms.off_policy.learner import Means
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.networks.configs import without_dropout
from rrf.policies.control.normalizer import EmpiricalNormalizer
from rrf.storage.rollout import ControlStep, Samples


class Discriminator(nn.Module):
    """Maps inputs [B, I] to logits [B], which are positive where it takes them for the expert's."""

    def __init__(self, cfg: DiscriminatorCfg, in_features: int):
        super().__init__()
        self.normalizer = EmpiricalNormalizer(in_features)
        self.network = without_dropout(cfg.network_cfg).build(in_features, 1)

    def forward(self, x_bi: torch.Tensor) -> torch.Tensor:
        return self.network(self.normalizer(x_bi)).squeeze(-1)


def cross_entropy(expert_b: torch.Tensor, policy_b: torch.Tensor) -> torch.Tensor:
    """-E[log D] of the expert's logits minus E[log(1 - D)] of the policy's, a scalar."""
    return functional.softplus(-expert_b).mean() + functional.softplus(policy_b).mean()


def gradient_penalty(network: nn.Module, x_bi: torch.Tensor) -> torch.Tensor:
    """E[(||df / dx|| - 1)^2] of a network with one output, a scalar."""
    x_bi = x_bi.detach().requires_grad_()
    (gradients,) = torch.autograd.grad(network(x_bi).sum(), x_bi, create_graph=True)
    return (gradients.norm(dim=-1) - 1.0).square().mean()


def between(
    expert_bi: torch.Tensor, policy_bi: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """A random point on the line between each pair of rows, [B, I]."""
    weights = torch.empty_like(expert_bi[:, :1]).uniform_(generator=generator)
    return torch.lerp(policy_bi, expert_bi, weights)


class DiscriminatorLearner:
    """Trains a discriminator with Adam."""

    def __init__(self, cfg: DiscriminatorCfg, module: Discriminator, generator: torch.Generator):
        self.cfg, self.module, self.generator = cfg, module, generator
        self.optimizer = torch.optim.Adam(
            module.network.parameters(), lr=cfg.learning_rate, fused=True
        )

    def learn(self, expert_mi: torch.Tensor, policy_si: torch.Tensor) -> dict[str, torch.Tensor]:
        """`num_updates` gradient steps; returns their mean metrics, 0-d tensors."""
        for rows in (expert_mi, policy_si):
            self.module.normalizer.update(rows)
        expert_mi, policy_si = map(self.module.normalizer, (expert_mi, policy_si))
        means = Means()
        for _ in range(self.cfg.num_updates):
            means.add(self._step(self._random_rows(expert_mi), self._random_rows(policy_si)))
        return means.averages()

    def _random_rows(self, rows: torch.Tensor) -> torch.Tensor:
        count = (self.cfg.batch_size,)
        return rows[torch.randint(len(rows), count, generator=self.generator, device=rows.device)]

    def _step(self, expert_bi: torch.Tensor, policy_bi: torch.Tensor) -> dict[str, torch.Tensor]:
        network, weight = self.module.network, self.cfg.gradient_penalty_coef
        expert_b, policy_b = network(torch.cat([expert_bi, policy_bi])).squeeze(-1).chunk(2)
        loss = cross_entropy(expert_b, policy_b)
        metrics = {
            "loss/discriminator": loss.detach(),
            "discriminator/expert_accuracy": (expert_b > 0).float().mean(),
            "discriminator/policy_accuracy": (policy_b < 0).float().mean(),
        }
        if weight:
            points = between(expert_bi, policy_bi, self.generator)
            penalty = gradient_penalty(network, points)
            metrics["loss/gradient_penalty"] = penalty.detach()
            loss = loss + weight * penalty
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        distributed.average_gradients(network)
        self.optimizer.step()
        return metrics

    def slow_down(self, slowness: float) -> None:
        """Set the learning rate to this share of the config's."""
        self.optimizer.param_groups[0]["lr"] = slowness * self.cfg.learning_rate

    def state(self) -> dict[str, torch.Tensor]:
        """Named tensors that `load_state` needs."""
        packed = optimizer_tensors(self.optimizer, self.module.network)
        tensors = {f"module/{key}": value for key, value in self.module.state_dict().items()}
        return tensors | {f"optimizer/{key}": value for key, value in packed.items()}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `state` returned."""
        self.module.load_state_dict(beneath(tensors, "module/"))
        restore_optimizer(self.optimizer, self.module.network, beneath(tensors, "optimizer/"))


_CLONING_LR = 1e-3
_CLONING_BATCH = 256


@dataclasses.dataclass
class Transitions:
    """What a discriminator may compare."""

    states: torch.Tensor  # float32 [M, O], not normalised
    actions: torch.Tensor  # float32 [M, A], within [-1, 1]
    next_states: torch.Tensor  # float32 [M, O]; without meaning where terminated
    terminated: torch.Tensor  # bool [M], the task itself ended


def reward(logits: torch.Tensor, kind: str) -> torch.Tensor:
    """-log(1 - D) for "gail", log D - log(1 - D) for "airl", where D = sigmoid(logits)."""
    return functional.softplus(logits) if kind == "gail" else logits


def absorbing_logit(expert_2: torch.Tensor, policy_2: torch.Tensor) -> torch.Tensor:
    """log f_E - log f_pi, the logit of D in the absorbing state, a scalar.

    f is (terminations + 1) / (transitions + 1), so that it is never 0.

    Args:
        expert_2: Terminations and transitions of the expert, float32 [2].
        policy_2: The same of the policy.
    """
    expert_ends, expert_all = (expert_2 + 1).log()
    policy_ends, policy_all = (policy_2 + 1).log()
    return (expert_ends - expert_all) - (policy_ends - policy_all)


class GAIL(PPO):
    """PPO with the reward of a discriminator. Call `imitate` before the first update."""

    cfg: GAILCfg

    def __init__(self, cfg: GAILCfg, policy, *args, **runtime):
        """
        Raises:
            ValueError: For discrete actions, and for cloning of an actor with a memory, beside what
                `PPO` raises.
        """
        interface = policy.interface
        if interface.num_choices is not None:
            raise ValueError(
                f"{interface.task or 'this environment'} has {interface.num_choices} discrete "
                "actions; GAIL imitates real ones, because only those can be recorded"
            )
        super().__init__(cfg, policy, *args, **runtime)
        if cfg.cloning_updates and policy.actor.memory is not None:
            raise ValueError(
                f"algorithm.cloning_updates is {cfg.cloning_updates}, but an actor with a memory "
                "cannot learn from single transitions; set it to 0"
            )
        self.sees_actions = cfg.compares == "actions"
        width = policy.actor.width
        compared_width = interface.num_actions if self.sees_actions else width
        module = Discriminator(cfg.discriminator_cfg, width + compared_width).to(self.device)
        self.discriminator = DiscriminatorLearner(cfg.discriminator_cfg, module, self.generator)
        self.expert: Transitions | None = None
        self._metrics: dict[str, torch.Tensor] = {}

    def imitate(self, expert: Transitions) -> None:
        """Set the transitions to imitate. They are not part of `state`."""
        tensors = {key: value.to(self.device) for key, value in vars(expert).items()}
        self.expert = Transitions(**tensors)

    def clone(self) -> None:
        """Fit the mean action to the expert's, as `cfg.cloning_updates` says."""
        assert self.expert is not None, "call `imitate` first"
        actor, states = self.policy.actor, self.expert.states
        if actor.normalizer is not None:
            actor.normalizer.update(states)
        optimizer = torch.optim.Adam(actor.parameters(), lr=_CLONING_LR, fused=True)
        for _ in range(self.cfg.cloning_updates):
            rows = torch.randint(
                len(states), (_CLONING_BATCH,), generator=self.generator, device=self.device
            )
            error = self.distribution_in(states[rows]).mode - self.expert.actions[rows]
            optimizer.zero_grad(set_to_none=True)
            error.square().mean().backward()
            distributed.average_gradients(actor)
            optimizer.step()

    def rewards(self, step: ControlStep) -> torch.Tensor:
        """Without the task's reward; `returns` adds the discriminator's."""
        return super().rewards(dataclasses.replace(step, rewards=torch.zeros_like(step.rewards)))

    def returns(self, observations: TensorDict) -> Samples:
        """See `PPO.returns`. The discriminator learns from the rollout and gives the rewards."""
        assert self.expert is not None, "call `imitate` first"
        self.rollout.write(actor_obs=self.policy.actor.read(observations))
        transitions = self._rollout_transitions()
        inputs = self._inputs(transitions)
        self._metrics = self.discriminator.learn(
            self._inputs_to_learn_from(self.expert), self._inputs_to_learn_from(transitions)
        )
        with torch.no_grad():
            rewards = reward(self.discriminator.module(inputs), self.cfg.reward)
        self._metrics["imitation/reward"] = rewards.mean()
        if self.cfg.use_absorbing_states:
            rewards = rewards + transitions.terminated * self._absorbing_reward(transitions)
        self.rollout["rewards"].add_(rewards.view_as(self.rollout["rewards"]))
        return super().returns(observations)

    def update(self, observations: TensorDict) -> dict[str, float]:
        """See `PPO.update`; also returns the discriminator's metrics and the mean reward."""
        metrics = super().update(observations)
        return metrics | {name: value.item() for name, value in self._metrics.items()}

    def slow_down(self, factor: float) -> None:
        """See `PPO.slow_down`; the discriminator slows down, too."""
        super().slow_down(factor)
        self.discriminator.slow_down(self.slowness)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        discriminator = {
            f"discriminator/{key}": value for key, value in self.discriminator.state().items()
        }
        return tensors | discriminator, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self.discriminator.load_state(beneath(tensors, "discriminator/"))
        self.discriminator.slow_down(self.slowness)

    def _rollout_transitions(self) -> Transitions:
        """Those of the rollout, in the order of its flattened steps."""
        rollout = self.rollout
        states = rollout["actor_obs"]
        next_states = states[1:].clone()
        for t, ended, final in rollout.finals:
            next_states[t, ended] = self.policy.actor.read(final)
        return Transitions(
            states=states[:-1].flatten(0, 1),
            actions=rollout["actions"].flatten(0, 1).clamp(-1, 1),
            next_states=next_states.flatten(0, 1),
            terminated=(rollout["dones"] & ~rollout["time_outs"]).flatten(),
        )

    def _inputs(self, transitions: Transitions) -> torch.Tensor:
        """What the discriminator reads, [M, I]."""
        compared = transitions.actions if self.sees_actions else transitions.next_states
        return torch.cat([transitions.states, compared], -1)

    def _inputs_to_learn_from(self, transitions: Transitions) -> torch.Tensor:
        """What it learns from; without terminations where it needs to know the state after them."""
        inputs = self._inputs(transitions)
        return inputs if self.sees_actions else inputs[~transitions.terminated]

    def _absorbing_reward(self, transitions: Transitions) -> torch.Tensor:
        """gamma / (1 - gamma) r(s_a), a scalar."""
        assert self.expert is not None
        expert, policy = map(_terminations_and_transitions, (self.expert, transitions))
        logit = absorbing_logit(expert, distributed.total(policy))
        return self.cfg.gamma / (1 - self.cfg.gamma) * reward(logit, self.cfg.reward)


def _terminations_and_transitions(transitions: Transitions) -> torch.Tensor:
    """Terminations and transitions, float32 [2]."""
    counts = [float(transitions.terminated.sum()), float(len(transitions.terminated))]
    return torch.tensor(counts, device=transitions.terminated.device)
