"""Ends episodes that have no hope: of those of their task that got as far, hardly any was solved.

What is known of an unfinished episode is its task and how many chunks it has executed. Its value,
the probability that it is still solved, is estimated from the episodes of earlier rounds. Where it
is low, the episode is tested once: with the probability `continued` it goes on, and what it
achieves then counts 1 / continued times (`PlayedEpisode.weight`), otherwise it ends as a failure.
Expected scores are therefore those without tests, and so is the estimate itself, which keeps
learning from what goes on. (Stopping a path at random with its weight corrected is known as Russian
roulette.)

With a critic, an episode that is stopped is truncated, as at the horizon: its last observation is
valued by the critic, and weights are 1.

Which episodes are stopped depends on earlier rounds and on the ids of jobs, never on timing.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rrf.data.dataset.sampling import mixed_seed
from rrf.runners.vla_rl.early_stop_configs import EarlyStopCfg
from rrf.storage.trajectories import PlayedEpisode

_DRAW = 0x57  # separates the draws from the episodes' own randomness


@dataclasses.dataclass
class _Seen:
    """Of a task's episodes, by the number of executed chunks: the weight of those that got there,
    and of those that were solved later."""

    reached: np.ndarray
    solved: np.ndarray


class EarlyStop:
    """The estimate, and the tests."""

    def __init__(self, cfg: EarlyStopCfg, tasks: Sequence[str], max_chunks: int):
        """
        Args:
            cfg: The limits.
            tasks: Names of all tasks.
            max_chunks: Chunks of the longest episode.
        """
        self.cfg = cfg
        self._seen = {task: _Seen(np.zeros(max_chunks), np.zeros(max_chunks)) for task in tasks}

    def is_hopeless(self, task: str, num_chunks: int) -> bool:
        """Whether an episode that has executed this many chunks has to pass the test.

        One more success is assumed than was seen, so that few episodes stop nothing.
        """
        seen = self._seen[task]
        if num_chunks >= len(seen.reached):
            return False
        value = (seen.solved[num_chunks] + 1) / (seen.reached[num_chunks] + 1)
        return bool(value <= self.cfg.hope)

    def goes_on(self, stream: Sequence[int], job_id: int) -> bool:
        """The test of an episode; the stream and the id seed it."""
        draw = np.random.default_rng(mixed_seed(*stream, job_id, _DRAW)).random()
        return bool(draw < self.cfg.continued)

    def learn(self, episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
        """Learn from the episodes of a round, all of which had to pass the same tests.

        Returns:
            rollout/stopped, the share of episodes that were stopped, and rollout/hope, an estimate
            of the share of these that would have been solved (0 if none was tested).
        """
        metrics = {
            task: _Seen(np.zeros_like(s.reached), np.zeros_like(s.solved))
            for task, s in self._seen.items()
        }
        num_stopped = num_continued = num_solved = 0
        for episode in episodes:
            task, length = episode.job.initial_state.task, len(episode)
            tested_at = self._tested_at(task, length + episode.stopped_early)
            new = metrics[task]
            weights = np.ones(length + episode.stopped_early)
            if tested_at is not None:
                weights[tested_at + 1 :] = 1 / self.cfg.continued
                num_stopped += episode.stopped_early
                num_continued += not episode.stopped_early
                num_solved += episode.success
            new.reached[: len(weights)] += weights
            if episode.success:
                new.solved[:length] += weights[-1]
        for task, new in metrics.items():
            seen, memory = self._seen[task], self.cfg.memory
            seen.reached = memory * seen.reached + new.reached
            seen.solved = memory * seen.solved + new.solved
        return {
            "rollout/stopped": num_stopped / len(episodes),
            "rollout/hope": num_solved / max(num_continued, 1),
        }

    def state_dict(self) -> dict:
        """Plain data that `load_state_dict` needs."""
        return {t: [s.reached.tolist(), s.solved.tolist()] for t, s in self._seen.items()}

    def load_state_dict(self, state: dict) -> None:
        self._seen = {task: _Seen(*map(np.array, pair)) for task, pair in state.items()}

    def _tested_at(self, task: str, length: int) -> int | None:
        """The chunks after which an episode was tested, if it got there."""
        return next((n for n in range(1, length) if self.is_hopeless(task, n)), None)
