"""Group-relative policy optimisation (arXiv:2402.03300) over action chunks.

An episode's score is its success, a little less for a slow one. Its advantage is how far the score
lies above the mean of the episodes that began alike, for every chunk of the episode. No critic.
"""

from collections.abc import Sequence

import torch

from rrf.algorithms.returns import group_advantages
from rrf.algorithms.vla.configs import GRPOCfg
from rrf.algorithms.vla.policy_gradient import PolicyGradient, success_reward
from rrf.storage.trajectories import PlayedEpisode, RolloutBatch, flatten


class GRPO(PolicyGradient):
    """See the module."""

    cfg: GRPOCfg
    needs_contrast = True

    def batch(self, groups: Sequence[Sequence[PlayedEpisode]], horizon: int) -> RolloutBatch:
        """Rows of all episodes; advantages float32 [N, 1].

        Raises:
            ValueError: For a score that is not finite, or a group of one.
        """
        cfg = self.cfg
        scores = torch.tensor(
            [
                [success_reward(episode, horizon, cfg.time_cost) for episode in group]
                for group in groups
            ]
        )
        advantages = group_advantages(scores, use_std=cfg.uses_std).flatten().tolist()
        episodes = [episode for group in groups for episode in group]
        return flatten(
            episodes,
            [torch.full((len(e), 1), a) for e, a in zip(episodes, advantages, strict=True)],
            row_weights([len(episode) for episode in episodes], cfg.weighting),
            chunk_length=self.policy.chunk_length,
        )


def row_weights(lengths: Sequence[int], weighting: str) -> list[torch.Tensor]:
    """What the rows of each episode count, float32 [T]; the mean over all rows is 1."""
    if weighting == "token":
        return [torch.ones(length) for length in lengths]
    mean = sum(lengths) / len(lengths)
    return [torch.full((length,), mean / length) for length in lengths]
