"""Metrics of the episodes of a round, under the names of RLinf's documentation and ours."""

import statistics
import typing
from collections.abc import Mapping, Sequence

from rrf.storage.trajectories import PlayedEpisode


class Rewarding(typing.Protocol):
    """An algorithm, as far as it is asked here."""

    def episode_return(self, episode: PlayedEpisode, horizon: int) -> float: ...


def episode_metrics(
    episodes: Sequence[PlayedEpisode],
    outcomes: Mapping[str, Sequence[bool]],
    algorithm: Rewarding,
    horizon: int,
) -> dict[str, float]:
    """What came of the episodes.

    `env/` is what the environment says; `rollout/reward_*` and `rollout/returns_mean` are of the
    rewards that the algorithm learns from. With a critic, the update's own mean of what the critic
    learns replaces `rollout/returns_mean`.

    Args:
        episodes: All of a round.
        outcomes: Which episodes of each task succeeded.
        algorithm: Says what an episode earned.
        horizon: Of the longest episode, in actions.
    """
    count, num_steps = len(episodes), sum(episode.num_steps for episode in episodes)
    returns = [algorithm.episode_return(episode, horizon) for episode in episodes]
    success = sum(episode.success for episode in episodes) / count
    length = num_steps / count
    earned = [float(episode.reward.sum()) for episode in episodes]
    by_task = {f"env/success_once/{t}": sum(o) / len(o) for t, o in outcomes.items() if o}
    return by_task | {
        "env/success_once": success,
        "env/success_at_end": sum(map(_solved_at_end, episodes)) / count,
        "env/success_rate": success,
        "env/episode_len": length,
        "env/return": sum(earned) / count,
        "env/step_reward": sum(earned) / num_steps,
        "env/termination_rate": sum(not episode.truncated for episode in episodes) / count,
        "env/num_trajectories": float(count),
        "rollout/reward_mean": statistics.fmean(returns),
        "rollout/reward_std": statistics.pstdev(returns),
        "rollout/returns_mean": statistics.fmean(returns),
        "rollout/episode_length": length,
        "rollout/success_rate": success,
    }


def _solved_at_end(episode: PlayedEpisode) -> bool:
    return episode.success if episode.success_at_end is None else episode.success_at_end
