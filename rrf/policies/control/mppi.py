"""Planning by model-predictive path integral control, as in TD-MPC2 (arXiv:2310.16828, 3.2).

Action sequences are drawn from a Gaussian around the plan of the step before, shifted by one, and
some from the learned policy. The E best ones, weighted by

    w_e = exp(temperature (R_e - max R)) / sum,

give the next mean and standard deviation. After the last iteration, one of them is drawn with these
weights, and its first action is executed. All environments are planned in one batch.

Legend: B batch, H steps of a plan, N environments, S samples, P of them from the policy, E elites,
A action dimension, D latent width, I iterations.
"""

import dataclasses
import typing
from collections.abc import Callable

import torch

from rrf.policies.control.world_model_configs import PlannerCfg


class Model(typing.Protocol):
    """What planning needs of a world model; see `rrf.policies.control.world_model.WorldModel`."""

    def step(
        self, z_bd: torch.Tensor, a_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...

    def policy(
        self, z_bd: torch.Tensor, noise_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def expected(
        self, z_bd: torch.Tensor, noise_ba: torch.Tensor, pair: torch.Tensor
    ) -> torch.Tensor: ...


class Rollouts(typing.NamedTuple):
    """Sequences of actions, and what became of them in the model."""

    actions: torch.Tensor  # [B, H, A]
    rewards: torch.Tensor  # [B], the discounted sum
    weights: torch.Tensor  # [B], the discount of what comes afterwards; 0 after a termination
    states: torch.Tensor  # [B, D], the last ones

    def returns(self, model: Model, noise_ba: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """The returns [B] if the learned policy acts afterwards."""
        return self.rewards + self.weights * model.expected(self.states, noise_ba, pair)

    def beside(self, others: "Rollouts", num_envs: int) -> "Rollouts":
        """These and others, with those of an environment together."""
        pairs = zip(self, others, strict=True)
        grouped = ([values.unflatten(0, (num_envs, -1)) for values in pair] for pair in pairs)
        return Rollouts(*(torch.cat(pair, 1).flatten(0, 1) for pair in grouped))


@dataclasses.dataclass
class PlanNoise:
    """The random numbers of a plan; standard normal if not said otherwise."""

    policy: torch.Tensor  # [H, N, P, A], for the policy's sequences
    samples: torch.Tensor  # [I, H, N, S - P, A], for the other sequences
    last: torch.Tensor  # [I, N, S, A], for the policy's actions after the sequences
    pairs: torch.Tensor  # int64 [I, 2], which critics judge
    choice: torch.Tensor  # [N, E], exponential, to choose among the elites
    action: torch.Tensor  # [N, A], added to the chosen action

    def of_env(self, index: int) -> "PlanNoise":
        """The numbers of one environment, as if it were the only one."""
        env = slice(index, index + 1)
        return PlanNoise(
            self.policy[:, env],
            self.samples[:, :, env],
            self.last[:, env],
            self.pairs,
            self.choice[env],
            self.action[env],
        )


def draw_noise(
    cfg: PlannerCfg, num_envs: int, num_actions: int, num_critics: int, generator: torch.Generator
) -> PlanNoise:
    """Draw the random numbers of a plan, on the device of the generator."""
    others, device = cfg.num_samples - cfg.num_policy_samples, generator.device

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, num_actions, device=device).normal_(generator=generator)

    orders = [
        torch.randperm(num_critics, generator=generator, device=device)[:2]
        for _ in range(cfg.iterations)
    ]
    choice = torch.empty(num_envs, cfg.num_elites, device=device)
    return PlanNoise(
        normal(cfg.horizon, num_envs, cfg.num_policy_samples),
        normal(cfg.iterations, cfg.horizon, num_envs, others),
        normal(cfg.iterations, num_envs, cfg.num_samples),
        torch.stack(orders),
        choice.exponential_(generator=generator),
        normal(num_envs),
    )


def plan(
    model: Model,
    z_nd: torch.Tensor,
    previous_hna: torch.Tensor,
    cfg: PlannerCfg,
    noise: PlanNoise,
    is_greedy: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plan from latent states.

    Args:
        previous_hna: The mean of the plan one step before; zeros where an episode begins.
        is_greedy: Whether to execute the chosen action itself, or to add noise to it.

    Returns:
        Actions [N, A] between -1 and 1, and the mean of the plan [H, N, A].
    """
    num_envs = len(z_nd)
    # The policy's sequences are the same in every iteration; only what comes after them is not.
    proposed = follow(model, z_nd, noise.policy, lambda z, noise: model.policy(z, noise)[0])
    mean = torch.cat([previous_hna[1:], torch.zeros_like(previous_hna[:1])])
    std = torch.full_like(mean, cfg.max_std)
    weights = elites = torch.empty(0)
    for samples, last, pair in zip(noise.samples, noise.last, noise.pairs, strict=True):
        drawn = torch.addcmul(mean.unsqueeze(2), std.unsqueeze(2), samples).clamp_(-1, 1)
        rollouts = proposed.beside(follow(model, z_nd, drawn, lambda _, a: a), num_envs)
        returns = rollouts.returns(model, last.flatten(0, 1), pair).view(num_envs, -1)
        best, index = returns.topk(cfg.num_elites, 1)
        weights = elite_weights(best, cfg.temperature)
        sequences = rollouts.actions.unflatten(0, (num_envs, -1)).permute(2, 0, 1, 3)
        where = index.view(1, num_envs, -1, 1).expand(len(mean), -1, -1, mean.shape[-1])
        elites = sequences.gather(2, where)
        fresh, std = weighted_moments(elites, weights)
        std = std.clamp(cfg.min_std, cfg.max_std)
        mean = torch.lerp(fresh, mean, cfg.momentum)
    # The largest of log w_e - log of an exponential number: e is drawn with probability w_e.
    chosen = (weights.log() - noise.choice.log()).argmax(1)
    actions = elites[0, torch.arange(num_envs, device=chosen.device), chosen]
    if not is_greedy:
        actions = torch.addcmul(actions, std[0], noise.action)
    return actions.clamp(-1, 1), mean


def elite_weights(returns_ne: torch.Tensor, temperature: float) -> torch.Tensor:
    """Weights [N, E] of elites by their returns; they sum to 1."""
    return (temperature * returns_ne).softmax(1)


def weighted_moments(
    elites_hnea: torch.Tensor, weights_ne: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean and standard deviation of action sequences, each [H, N, A]."""
    weights = weights_ne.unsqueeze(-1)
    mean = (weights * elites_hnea).sum(2)
    squares = (elites_hnea - mean.unsqueeze(2)).square()
    return mean, (weights * squares).sum(2).sqrt()


def follow(
    model: Model,
    z_nd: torch.Tensor,
    numbers_hnsa: torch.Tensor,
    choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Rollouts:
    """S sequences of each environment in the model.

    Args:
        choose: Makes actions [B, A] of latent states [B, D] and the numbers [B, A] of a step.
    """
    z_bd = z_nd.repeat_interleave(numbers_hnsa.shape[2], 0)
    total = z_bd.new_zeros(len(z_bd), dtype=torch.float32)
    weight = torch.ones_like(total)
    actions: list[torch.Tensor] = []
    for numbers_ba in numbers_hnsa.flatten(1, 2):
        actions.append(choose(z_bd, numbers_ba))
        rewards, z_bd, discounts = model.step(z_bd, actions[-1])
        total = total + weight * rewards
        weight = weight * discounts
    return Rollouts(torch.stack(actions, 1), total, weight, z_bd)
