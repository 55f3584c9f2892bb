"""Policy gradients without a critic over action chunks: GRPO, and REINFORCE with other baselines.

The score of an episode is the sum of its rewards: by default 1 for a success, reduced a little if
it was slow, and 0 for a failure. Its advantage compares it with other episodes, and every chunk of
the episode gets this advantage. A group is the episodes that started from the same initial state.

| algorithm | advantage of an episode |
|---|---|
| GRPO (arXiv:2402.03300) | (score - mean of its group) / std of its group |
| RLOO (arXiv:2402.14740): baseline leave_one_out | score - mean of the others of its group |
| REINFORCE++ (arXiv:2501.03262): baseline batch, normalizes | (score - mean of all) / std of all |
| the same with baseline group | the same of (score - mean of its group) |

The clipped surrogate and the KL penalty are those of `PolicyGradient`.
"""

import typing
from collections.abc import Sequence

import torch

from rrf.algorithms.returns import group_advantages, leave_one_out_advantages, normalize
from rrf.algorithms.vla.configs import SUCCESS, GRPOCfg, ReinforceCfg
from rrf.algorithms.vla.policy_gradient import PolicyGradient, row_weights
from rrf.storage.trajectories import PlayedEpisode, RolloutBatch, flatten


class OutcomeGradient(PolicyGradient):
    """Base class: `advantages` compares the scores of episodes."""

    cfg: typing.Any  # an OutcomeCfg

    def advantages(self, scores_ng: torch.Tensor) -> torch.Tensor:
        """Advantages of the scores of N groups of G episodes, float32 [N, G]."""
        raise NotImplementedError

    def batch(self, groups: Sequence[Sequence[PlayedEpisode]], horizon: int) -> RolloutBatch:
        """The rows of all episodes; their advantages are float32 [N, 1].

        Raises:
            ValueError: For a score that is not finite, or for a group of one episode where an
                episode is compared with its group.
        """
        scores = [[self._score(episode, horizon) for episode in group] for group in groups]
        advantages = self.advantages(torch.tensor(scores)).flatten().tolist()
        episodes = [episode for group in groups for episode in group]
        return flatten(
            episodes,
            [torch.full((len(e), 1), a) for e, a in zip(episodes, advantages, strict=True)],
            row_weights([len(episode) for episode in episodes], self.cfg.weighting),
            chunk_length=self.policy.chunk_length,
        )

    def _score(self, episode: PlayedEpisode, horizon: int) -> float:
        reward = self.rewards.total(episode, horizon)
        if share := self.cfg.overlong_share:
            steps = horizon if episode.stopped_early else episode.num_steps
            reward -= max(0.0, (steps / horizon - (1 - share)) / share)
        return reward


class GRPO(OutcomeGradient):
    """See the module."""

    cfg: GRPOCfg

    def __init__(self, cfg: GRPOCfg, policy, reference=None):
        super().__init__(cfg, policy, reference)
        self.needs_contrast = cfg.reward == SUCCESS

    def advantages(self, scores_ng: torch.Tensor) -> torch.Tensor:
        return group_advantages(scores_ng, use_std=self.cfg.uses_std)


class Reinforce(OutcomeGradient):
    """See the module."""

    cfg: ReinforceCfg

    def __init__(self, cfg: ReinforceCfg, policy, reference=None):
        super().__init__(cfg, policy, reference)
        self.needs_contrast = cfg.baseline != "batch" and cfg.reward == SUCCESS

    def advantages(self, scores_ng: torch.Tensor) -> torch.Tensor:
        match self.cfg.baseline:
            case "leave_one_out":
                advantages_ng = leave_one_out_advantages(scores_ng)
            case "group":
                advantages_ng = group_advantages(scores_ng, use_std=False)
            case "batch":
                advantages_ng = scores_ng - scores_ng.mean()
        return normalize(advantages_ng) if self.cfg.normalizes else advantages_ng
