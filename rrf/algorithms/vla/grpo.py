"""Group-relative policy optimisation (arXiv:2402.03300) over action chunks.

The score of an episode is 1 for a success, reduced a little if it was slow, and 0 for a failure.
The advantage of an episode is its score minus the mean score of its group: the episodes that
started from the same initial state. Every chunk of the episode gets this advantage. There is no
critic.
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
        """The rows of all episodes; their advantages are float32 [N, 1].

        Raises:
            ValueError: For a score that is not finite, or for a group of one episode.
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
    """The weights of the rows of each episode, float32 [T]; the mean over all rows is 1."""
    if weighting == "token":
        return [torch.ones(length) for length in lengths]
    mean = sum(lengths) / len(lengths)
    return [torch.full((length,), mean / length) for length in lengths]
