"""PPO in one file, in the manner of CleanRL: it knows Gymnasium and torch, and nothing of rrf.

Legend: T steps of a rollout, N environments, O width of an observation, A width of an action.
"""

import argparse
import itertools

import gymnasium
import numpy as np
import torch
from torch import nn

GAMMA, LAMBDA, CLIP, ENTROPY, TARGET_KL = 0.99, 0.95, 0.2, 0.005, 0.02


class Agent(nn.Module):
    """A Gaussian policy and a value function."""

    def __init__(self, num_observations: int, num_actions: int, hidden: list[int]):
        super().__init__()
        self.mean = mlp([num_observations, *hidden, num_actions])
        self.value = mlp([num_observations, *hidden, 1])
        self.log_std = nn.Parameter(torch.zeros(num_actions))

    def distribution(self, observations: torch.Tensor) -> torch.distributions.Independent:
        """The distribution of actions."""
        normal = torch.distributions.Normal(self.mean(observations), self.log_std.exp())
        return torch.distributions.Independent(normal, 1)


def mlp(widths: list[int]) -> nn.Sequential:
    """Linear layers with ELU between them."""
    pairs = itertools.pairwise(widths)
    layers = [part for a, b in pairs for part in (nn.Linear(a, b), nn.ELU())]
    return nn.Sequential(*layers[:-1])


def train(
    envs: gymnasium.vector.VectorEnv,
    num_updates: int,
    num_steps: int = 24,
    hidden: tuple[int, ...] = (256, 128),
    seed: int = 0,
) -> list[float]:
    """Train in `envs`; returns the mean return of the last hundred episodes after each update."""
    torch.manual_seed(seed)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    num_observations, num_actions = (
        space.shape[0] for space in (envs.single_observation_space, envs.single_action_space)
    )
    agent = Agent(num_observations, num_actions, list(hidden))
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    observations, _ = envs.reset(seed=seed)
    curve = []
    for _ in range(num_updates):
        rollout, observations = play(envs, agent, observations, num_steps)
        learn(agent, optimizer, *rollout)
        curve.append(float(np.mean(envs.return_queue)) if envs.return_queue else float("nan"))
    envs.close()
    return curve


@torch.no_grad()
def play(envs, agent: Agent, observations: np.ndarray, num_steps: int):
    """A rollout with its advantages: observations [T, N, O], actions, log-probs, returns, ..."""
    steps = []
    for _ in range(num_steps):
        x = torch.as_tensor(observations)
        distribution, value = agent.distribution(x), agent.value(x).squeeze(-1)
        action = distribution.sample()
        observations, reward, terminated, truncated, infos = envs.step(action.numpy())
        reward = torch.as_tensor(reward, dtype=torch.float32)
        if truncated.any():  # the episode would have gone on: add the value of its last observation
            last = torch.as_tensor(np.stack(infos["final_obs"][truncated]))
            reward[torch.as_tensor(truncated)] += GAMMA * agent.value(last).squeeze(-1)
        done = torch.as_tensor(terminated | truncated).float()
        steps.append((x, action, distribution.log_prob(action), value, reward, done))
    parts = (torch.stack(part) for part in zip(*steps, strict=True))
    x, actions, log_probs, values, rewards, dones = parts
    next_value = agent.value(torch.as_tensor(observations)).squeeze(-1)
    advantages, advantage = torch.zeros_like(rewards), torch.zeros_like(next_value)
    for t in reversed(range(num_steps)):
        delta = rewards[t] + GAMMA * next_value * (1 - dones[t]) - values[t]
        advantage = delta + GAMMA * LAMBDA * (1 - dones[t]) * advantage
        advantages[t], next_value = advantage, values[t]
    flat = (part.flatten(0, 1) for part in (x, actions, log_probs, advantages + values, advantages))
    return tuple(flat), observations


def learn(agent: Agent, optimizer, x, actions, log_probs, returns, advantages) -> None:
    """Five passes over the rollout in four mini-batches; the learning rate follows the KL."""
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(5):
        for rows in torch.randperm(len(x)).chunk(4):
            distribution = agent.distribution(x[rows])
            log_ratio = distribution.log_prob(actions[rows]) - log_probs[rows]
            ratio = log_ratio.exp()
            kl = (ratio - 1 - log_ratio).mean().item()
            for group in optimizer.param_groups:
                factor = 1 / 1.5 if kl > 2 * TARGET_KL else 1.5 if kl < TARGET_KL / 2 else 1.0
                group["lr"] = min(1e-2, max(1e-5, group["lr"] * factor))
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            surrogate = torch.min(ratio * advantages[rows], clipped * advantages[rows]).mean()
            value_loss = (agent.value(x[rows]).squeeze(-1) - returns[rows]).square().mean()
            loss = value_loss - surrogate - ENTROPY * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
            optimizer.step()


if __name__ == "__main__":
    import rrf.envs
    from rrf.presets import resolve

    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="go1-flat-ppo", help="whose environment to train in")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--updates", type=int, default=150)
    words = parser.parse_args()
    envs = rrf.envs.as_gymnasium(resolve(words.preset).env, num_envs=words.num_envs)
    for update, mean_return in enumerate(train(envs, words.updates), start=1):
        print(f"update {update}: return {mean_return:.2f}")
