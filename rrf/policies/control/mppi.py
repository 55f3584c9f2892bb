"""Planning by model-predictive path integral control, as in TD-MPC2 (arXiv:2310.16828, 3.2).

Action sequences are drawn from a Gaussian around the plan of the step before, shifted by one, and
some from the learned policy. The E best ones, weighted by

    w_e = exp(temperature (R_e - max R)) / sum,

give the next mean and standard deviation. After the last iteration, one of them is drawn with these
weights, and its first action is executed. All environments are planned in one batch.

Legend: H steps of a plan, N environments, S samples, P of them from the policy, E elites, A action
dimension, D latent width, I iterations.
"""

import dataclasses
import typing

import torch

from rrf.policies.control.world_model_configs import PlannerCfg


class Model(typing.Protocol):
    """What planning needs of a world model; see `rrf.policies.control.world_model.WorldModel`."""

    def next_states(self, z_bd: torch.Tensor, a_ba: torch.Tensor) -> torch.Tensor: ...

    def policy(
        self, z_bd: torch.Tensor, noise_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def returns(
        self,
        z_bd: torch.Tensor,
        actions_hba: torch.Tensor,
        noise_ba: torch.Tensor,
        pair: torch.Tensor,
    ) -> torch.Tensor: ...


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
        one = slice(index, index + 1)
        return PlanNoise(
            self.policy[:, one],
            self.samples[:, :, one],
            self.last[:, one],
            self.pairs,
            self.choice[one],
            self.action[one],
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
    num_steps, num_envs, width = previous_hna.shape
    sequences = previous_hna.new_empty(num_steps, num_envs, cfg.num_samples, width)
    sequences[:, :, : cfg.num_policy_samples] = _of_policy(model, z_nd, noise.policy)
    mean = torch.cat([previous_hna[1:], torch.zeros_like(previous_hna[:1])])
    std = torch.full_like(mean, cfg.max_std)
    starts = z_nd.repeat_interleave(cfg.num_samples, 0)
    weights = elites = torch.empty(0)
    for samples, last, pair in zip(noise.samples, noise.last, noise.pairs, strict=True):
        drawn = torch.addcmul(mean.unsqueeze(2), std.unsqueeze(2), samples)
        sequences[:, :, cfg.num_policy_samples :] = drawn.clamp_(-1, 1)
        flat = sequences.flatten(1, 2), last.flatten(0, 1)
        returns = model.returns(starts, *flat, pair).view(num_envs, -1)
        best, index = returns.topk(cfg.num_elites, 1)
        weights = elite_weights(best, cfg.temperature)
        where = index.view(1, num_envs, -1, 1).expand(num_steps, -1, -1, width)
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


def _of_policy(model: Model, z_nd: torch.Tensor, noise_hnpa: torch.Tensor) -> torch.Tensor:
    """Action sequences [H, N, P, A] of the learned policy in the model."""
    z = z_nd.repeat_interleave(noise_hnpa.shape[2], 0)
    actions: list[torch.Tensor] = []
    for noise in noise_hnpa.flatten(1, 2):
        if actions:
            z = model.next_states(z, actions[-1])
        actions.append(model.policy(z, noise)[0])
    return torch.stack(actions).view_as(noise_hnpa)
