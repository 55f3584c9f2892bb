"""PPO (arXiv:1707.06347) over action chunks, with a value head on the policy's features.

A time step is a chunk or a single action (`reward_level`). If the horizon truncated an episode, the
value of its last observation is added to its last reward (arXiv:1712.00378); with
bootstrap=always, also if a success did.

Legend: N rows, T decisions of the longest episode, B episodes, V values per row (1, or one for
each action of a chunk).
"""

from collections.abc import Sequence

import torch

from rrf.algorithms.returns import add_time_limit_bootstrap, gae, normalize
from rrf.algorithms.vla.configs import VLAPPOCfg
from rrf.algorithms.vla.losses import aggregate, clipped_value_loss, row_means
from rrf.algorithms.vla.policy_gradient import (
    Metrics,
    PolicyGradient,
    row_weights,
)
from rrf.algorithms.vla.rewards import by_decision
from rrf.policies.policy import Policy
from rrf.storage.trajectories import PlayedEpisode, RolloutBatch, flatten


class VLAPPO(PolicyGradient):
    """See the module."""

    cfg: VLAPPOCfg

    def __init__(self, cfg: VLAPPOCfg, policy: Policy, reference: Policy | None = None):
        """
        Raises:
            ValueError: If the policy has no value head, or one for another reward level.
        """
        super().__init__(cfg, policy, reference)
        wanted = policy.chunk_length if cfg.reward_level == "action" else 1
        if policy.num_values != wanted:
            raise ValueError(
                f"reward_level is '{cfg.reward_level}', which needs {wanted} value(s) per chunk, "
                f"but the policy's value head has {policy.num_values}; set "
                f"policy.value_head.level={cfg.reward_level}"
            )
        if cfg.reward_level == "action" and cfg.log_prob_level == "chunk":
            raise ValueError(
                "reward_level 'action' gives every action its own advantage, but log_prob_level "
                "'chunk' has a single ratio for all of them; use log_prob_level=action"
            )

    def batch(self, groups: Sequence[Sequence[PlayedEpisode]], horizon: int) -> RolloutBatch:
        """The rows of all episodes; their advantages and returns are float32 [N, V].

        Raises:
            ValueError: For a reward or value that is not finite.
        """
        cfg = self.cfg
        episodes = [episode for group in groups for episode in group]
        lengths = [e.num_steps if cfg.reward_level == "action" else len(e) for e in episodes]
        shape = (max(lengths), len(episodes))
        rewards_tb, values_tb = torch.zeros(shape), torch.zeros(shape[0] + 1, shape[1])
        rewards = [self._rewards(episode, horizon) for episode in episodes]
        last_b = add_time_limit_bootstrap(
            torch.stack([of_episode[-1] for of_episode in rewards]),
            torch.tensor([e.truncated or cfg.bootstraps_success for e in episodes]),
            torch.tensor([episode.final_value for episode in episodes]),
            cfg.gamma,
        )
        for column, (episode, length) in enumerate(zip(episodes, lengths, strict=True)):
            rewards_tb[:length, column] = rewards[column]
            rewards_tb[length - 1, column] = last_b[column]
            values_tb[:length, column] = episode.value.flatten()[:length]
        is_inside_tb = torch.arange(shape[0]).unsqueeze(1) < torch.tensor(lengths)
        dones_tb = torch.cat([torch.zeros(1, shape[1], dtype=torch.bool), ~is_inside_tb])
        dones_tb[torch.tensor(lengths), torch.arange(shape[1])] = True
        advantages_tb, returns_tb = gae(rewards_tb, values_tb, dones_tb, cfg.gamma, cfg.lam)
        advantages_tb = normalize(advantages_tb, is_inside_tb)
        return flatten(
            episodes,
            _rows(advantages_tb, episodes, lengths),
            row_weights([len(episode) for episode in episodes], cfg.weighting),
            _rows(returns_tb, episodes, lengths),
            chunk_length=self.policy.chunk_length,
        )

    def _rewards(self, episode: PlayedEpisode, horizon: int) -> torch.Tensor:
        """The reward of each time step, float32."""
        rewards = self.rewards.of(episode, horizon)
        if self.cfg.reward_level == "chunk":
            rewards = by_decision(rewards, episode)
        return torch.from_numpy(rewards).float()

    def loss(self, rows: RolloutBatch, round_number: int) -> tuple[torch.Tensor, Metrics]:
        """See `PolicyGradient.loss`; in the first rounds only the critic learns."""
        cfg = self.cfg
        evaluation = self.policy.evaluate(rows.observation, rows.replay)
        assert evaluation.value is not None
        loss, metrics = self.policy_loss(rows, evaluation, round_number)
        if round_number < cfg.critic_warmup_rounds:
            loss = 0.0 * loss
        value_loss, more = self.value_loss(rows, evaluation.value)
        return loss + cfg.value_coef * value_loss, metrics | more

    def value_loss(self, rows: RolloutBatch, value: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        """The loss of the critic, a scalar, and metrics; `value` is float32 [N, V]."""
        cfg, mask = self.cfg, rows.value_mask
        elementwise, is_clipped = clipped_value_loss(
            value, rows.value, rows.returns, cfg.value_clip, cfg.huber_delta
        )
        if cfg.weighting == "token":
            loss = aggregate(elementwise, mask)
        else:
            loss = (row_means(elementwise, mask) * rows.weight).mean()
        return loss, {
            "actor/value_loss": loss.detach(),
            "actor/value_clip_ratio": (clip_ratio := aggregate(is_clipped.float(), mask)),
            "critic/value_clip_ratio": clip_ratio,
        }


def _rows(
    values_tb: torch.Tensor, episodes: Sequence[PlayedEpisode], lengths: Sequence[int]
) -> list[torch.Tensor]:
    """The column of each episode as rows [T, V]; 0 where no action was executed."""
    rows = []
    for column, (episode, length) in enumerate(zip(episodes, lengths, strict=True)):
        flat = torch.zeros(episode.value.numel())
        flat[:length] = values_tb[:length, column]
        rows.append(flat.view(episode.value.shape))
    return rows
