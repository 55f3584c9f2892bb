"""SAC over a frozen policy: learns the actor of a `ResidualVLA` from whole episodes.

The decision process is a semi-Markov one: a decision is a chunk, which lasts k <= H actions. With
the reward r_i of each action, by default 1 at a success, at the last action, and 0 elsewhere, the
target of a chunk's value is

    sum_{i < k} gamma^i r_i + gamma^k (min Q'(s', a') - alpha log p(a'|s')),

without the second term where the task ended (success), with it where only time ran out. With
`n_steps`, the sum goes over several chunks, and gamma's exponent counts all their actions. Both sum
and discount are known when an episode is over, so that they are stored. What a state is, the base's
features and chunk, was computed when it was played. The base does not change, so it stays exact.

With `correction_cost` c, c |u|^2 is added to the actor's loss, so that a correction u leaves the
base's chunk only where the critics see a gain, as in RLT (arXiv:2604.23073).

Gradient steps, targets, temperature and slow copies are those of `rrf.algorithms.off_policy.sac`.
The actor has a slow copy, too, which is validated and deployed.

Legend: T chunks of an episode, O what the actor reads, B batch.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import SAC, Noise
from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.algorithms.vla.rewards import Rewards
from rrf.policies.control.off_policy_actors import ActorQ
from rrf.policies.control.off_policy_configs import ActorQPackCfg
from rrf.policies.vla.residual import ResidualVLA
from rrf.storage.replay import Replay, RowLayout, Transitions
from rrf.storage.trajectories import PlayedEpisode


class ResidualSAC(SAC):
    """Call `remember` for the episodes of a round, then `update`."""

    cfg: ResidualSACCfg
    needs_contrast = False

    def __init__(self, cfg: ResidualSACCfg, policy: ResidualVLA, generator: torch.Generator):
        """
        Args:
            policy: Its actor is trained in place.
            generator: Samples batches and noise; on the policy's device.
        """
        pair = ActorQ(
            ActorQPackCfg(actor_cfg=policy.cfg.actor, critic_cfg=cfg.critic), policy.interface
        )
        pair.actor = policy.actor
        device = next(policy.parameters()).device
        pair.to(device)
        self.rewards = Rewards(cfg.reward)
        self.deployed_actor = self.slow_copy(policy.actor)
        super().__init__(cfg, pair, 1, cfg.replay_size, generator, device)

    def make_replay(self, layout: RowLayout, size: int, memory_gib: float | None) -> Replay:
        layout = RowLayout(layout.actor_width, None, layout.num_actions, has_discount=True)
        return Replay(layout, size, self.num_envs, self.device, memory_gib)

    @property
    def learns_policy(self) -> bool:
        return self.num_updates >= self.cfg.critic_warmup_updates

    def action_cost(self, actions: torch.Tensor) -> torch.Tensor | float:
        cost = self.cfg.correction_cost
        return cost * actions.square().sum(-1).mean() if cost else 0.0

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield from super().slow_copies()
        yield self.deployed_actor, self.policy.actor

    def episode_return(self, episode: PlayedEpisode, horizon: int) -> float:
        """The sum of an episode's rewards."""
        return self.rewards.total(episode, horizon)

    @torch.no_grad()
    def remember(self, episodes: Sequence[PlayedEpisode]) -> None:
        """Store the chunks of finished episodes.

        Raises:
            ValueError: For a number that is not finite.
        """
        for episode in episodes:
            state = episode.job.initial_state
            for name, values in episode.replay.items():
                if not values.isfinite().all():
                    raise ValueError(
                        f"{name} of an episode of {state.task} (seed {state.seed}, initial state "
                        f"{state.index}) is not finite; nothing was learned from this round"
                    )
        for episode in episodes:
            rewards_s = self.rewards.of(episode, episode.num_steps)
            for row in chunk_rows(episode, rewards_s, self.cfg.n_steps, self.cfg.gamma):
                self.replay.write(**{name: v.to(self.device) for name, v in row.items()})
                self._count()

    def batches(self, count: int) -> Iterator[tuple[Batch, Noise]]:
        """See `SAC.batches`; here one after another, because rows are wide."""
        layout, size = self.replay.layout, self.cfg.batch_size
        for _ in range(count):
            steps: Transitions = self.replay.gather(self.replay.sample((size,), self.generator))
            [noise] = self.draw_noise(1, size)
            yield Batch(Transitions(steps.rows, layout), steps.discounts), noise


def chunk_rows(
    episode: PlayedEpisode, rewards_s: np.ndarray, n_steps: int, gamma: float
) -> Iterator[dict[str, torch.Tensor]]:
    """The transitions of an episode, whose actions were rewarded by `rewards_s`, each as
    `Replay.write` takes it for one environment.

    Where fewer than `n_steps` chunks are left, the sum is shorter.
    """
    seen_to, residual_ta = episode.replay["seen"], episode.replay["residual"]
    num_chunks = len(episode)
    begin = np.concatenate([[0], np.cumsum(episode.steps)])  # the first action of each chunk
    for t in range(num_chunks):
        after = min(t + n_steps, num_chunks)
        ends = after == num_chunks
        is_over = ends and not episode.truncated
        num_actions = int(begin[after] - begin[t])
        of_actions = rewards_s[begin[t] : begin[after]].tolist()
        reward = float(sum(gamma**i * r for i, r in enumerate(of_actions) if r))
        if ends and not is_over:
            assert episode.final_replay is not None, "the end of a truncated episode was not seen"
            following = episode.final_replay["seen"]
        else:  # once the task is over, the following state is never used
            following = seen_to[min(after, num_chunks - 1)]
        yield {
            "observations": seen_to[t : t + 1],
            "actions": residual_ta[t : t + 1],
            "rewards": torch.tensor([reward]),
            "terminated": torch.tensor([is_over]),
            "ended": torch.tensor([ends]),
            "next_observations": following.unsqueeze(0),
            "discounts": torch.tensor([0.0 if is_over else gamma**num_actions]),
        }
