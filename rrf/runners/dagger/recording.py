"""The recorded episodes of a round: which ones are played, and the dataset they become.

ROUND/data is a LeRobot dataset like every published one. Its meta/info.json has the facts of the
round under "dagger".
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.layout import NORM_STATS, read_info
from rrf.data.dataset.stats import norm_stats
from rrf.data.encoding import Encoding
from rrf.data.files import content_digest
from rrf.data.schema import Episode, Schema
from rrf.envs.vec_env import InitialState
from rrf.runners.dagger.configs import DAggerRunnerCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.storage.trajectories import PlayedEpisode

_FACTS = "dagger"


def initial_states(cfg: DAggerRunnerCfg, round_number: int) -> list[InitialState]:
    """The initial states of a round's recorded episodes. Rounds take them one after another."""
    per_seed = cfg.env.num_initial_states
    first = round_number * cfg.episodes_per_task
    numbers = range(first, first + cfg.episodes_per_task)
    states = [
        (cfg.env_seeds[number // per_seed % len(cfg.env_seeds)], number % per_seed)
        for number in numbers
    ]
    return [InitialState(task, *state) for task in cfg.tasks for state in states]


class Recording(JobList):
    """A job source that compresses and keeps the recordings of its episodes.

    Args:
        states: The initial states to play.
        schema: What a frame of the run's datasets holds.
        on_episode: Called after each episode.
    """

    def __init__(
        self,
        states: Sequence[InitialState],
        schema: Schema,
        on_episode: Callable[[PlayedEpisode], None],
    ):
        super().__init__(states)
        self._schema, self._on_episode = schema, on_episode
        self._encoded: dict[int, EncodedEpisode] = {}
        self._num_expert_steps = 0

    def report(self, episode: PlayedEpisode) -> None:
        """See `JobSource.report`.

        Raises:
            ValueError: If a frame does not hold what the run's datasets hold.
        """
        recording, episode.recording = episode.recording, None
        assert recording is not None, "the role does not record"
        self._encoded[episode.job.id] = self._encode(recording, episode.job.initial_state)
        self._num_expert_steps += recording["num_expert_steps"]
        super().report(episode)
        self._on_episode(episode)

    def write(self, root: Path, facts: Mapping) -> None:
        """Write the dataset; there is all of it at `root`, or nothing.

        Args:
            root: The dataset's directory.
            facts: More facts about the round.
        """
        episodes = self.episodes
        frames = sum(episode.num_steps for episode in episodes)
        facts = {
            **facts,
            "episodes": len(episodes),
            "frames": frames,
            "success": sum(episode.success for episode in episodes) / len(episodes),
            "expert_share": self._num_expert_steps / frames,
        }
        write_dataset(
            root,
            self._schema,
            [self._encoded[number] for number in sorted(self._encoded)],
            provenance={"provenance": "Recorded by DAgger: states of a policy, actions of experts"},
            more_info={_FACTS: facts},
            on_complete=lambda folder: atomic.write_json(folder / NORM_STATS, norm_stats(folder)),
        )

    def _encode(self, recording: Mapping, state: InitialState) -> EncodedEpisode:
        if recording["fps"] != self._schema.fps:
            raise ValueError(
                f"the environment takes {recording['fps']} actions per second, but the dataset has "
                f"{self._schema.fps} frames per second; change env.action_repeat"
            )
        episode = Episode(
            images={camera: recording[f"image/{camera}"] for camera in self._schema.cameras},
            state=np.asarray(recording["state"], np.float32),
            action=recording["action"],
            instruction=recording["instruction"][0],
            source=f"{state.task} (seed {state.seed}, initial state {state.index})",
            reward=recording["reward"],
            success=recording["success"],
        )
        return encode_episode(episode, self._schema, Encoding())


def facts_of(root: Path) -> dict:
    """The facts of a recorded round, with the digest of its dataset.

    Keys: round, beta, episodes, frames, success (share of the episodes), expert_share (of the
    executed steps), digest.
    """
    return read_info(root)[_FACTS] | {"digest": content_digest(root)}
