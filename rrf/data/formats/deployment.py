"""What deployed policies did, as robots have logged it (`rrf.data.episode_log`): a folder per
episode.

| key                       | holds                                                               |
|---------------------------|---------------------------------------------------------------------|
| observation.…             | what the robot saw, by the names of the policy's inputs             |
| action                    | as it was executed                                                  |
| by_operator               | 1 where a person corrected the policy, else 0                       |
| by_policy                 | 1 where the policy itself decided, 0 for the operator, a fallback   |
| success                   | in the last frame: the episode was solved                           |
| progress                  | where the robot knows it; else -1                                   |

The episode table gets a column for each of `FACTS`: which policy acted, and how the episode ended.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data import episode_log
from rrf.data.raw import RawEpisode, Recording
from rrf.data.schema import EncodedImages

ACTION, BY_OPERATOR, BY_POLICY = "action", "by_operator", "by_policy"
SUCCESS, PROGRESS = "success", "progress"
FLAGS = (BY_OPERATOR, BY_POLICY, SUCCESS, PROGRESS)
FACTS = (
    *("log_episode", "log_robot", "log_policy", "log_policy_digest", "log_outcome", "log_how"),
    *("log_interventions", "log_start"),
)
"""The columns of the episode table that say where an episode comes from."""


class EpisodeLogSource:
    """Logged episodes that are over. It has no options."""

    def __init__(self, path: Path, options: dict):
        self.path = Path(path)
        if options:
            raise ValueError(
                f"source.options: {', '.join(options)}: the format episode_log has none"
            )

    def recordings(self) -> list[Recording]:
        recordings = []
        for folder in self._folders():
            manifest = episode_log.read_manifest(folder)
            files = tuple(folder / name for name in manifest["files"])
            recordings.append(Recording(folder.name, files, 1))
        return recordings

    def keys(self) -> dict[str, str]:
        folder = self._folders()[0]
        first = next((r for r in episode_log.records_of(folder) if r["kind"] == "step"), None)
        if first is None:
            raise ValueError(f"{folder} has no step")
        seen = {key: _described(value) for key, value in first["observation"].items()}
        return seen | {ACTION: _described(first["action"])} | dict.fromkeys(FLAGS, "float32[1]")

    def episodes(self, recording: Recording, keys: Sequence[str]) -> Iterator[RawEpisode]:
        folder = recording.paths[0].parent
        episode_log.check_episode(folder)
        logged = episode_log.read_episode(folder, set(keys))
        arrays: dict[str, np.ndarray] = {
            ACTION: logged.action,
            BY_OPERATOR: (logged.by == episode_log.OPERATOR).astype(np.float32),
            BY_POLICY: (logged.by == episode_log.POLICY).astype(np.float32),
            SUCCESS: np.zeros(len(logged), np.float32),
            PROGRESS: np.nan_to_num(logged.progress, nan=-1.0),
        }
        arrays[SUCCESS][-1] = logged.end.get("outcome") == episode_log.SUCCESS
        images = {}
        for key in keys:
            values = logged.observations.get(key)
            if isinstance(values, EncodedImages):
                images[key] = values
            elif values is not None:
                arrays[key] = values
            elif key not in arrays:
                known = [*logged.observations, *arrays]
                raise ValueError(f"{folder} has no key '{key}'{did_you_mean(key, known)}")
        begin = logged.begin
        yield RawEpisode(
            {key: arrays[key] for key in keys if key in arrays},
            images,
            begin["instruction"],
            str(folder),
            fps=float(begin["fps"]),
            continues=False,
            facts=_facts(begin, logged),
        )

    def _folders(self) -> list[Path]:
        folders = sorted(file.parent for file in self.path.glob(f"*/{atomic.MANIFEST}"))
        if not folders:
            raise ValueError(
                f"{self.path} has no logged episode that is over; bring some: rrf logs ingest NAME"
            )
        return folders


def _facts(begin: dict, logged: episode_log.LoggedEpisode) -> dict[str, str | float]:
    policy = begin["policy"]
    is_operator = logged.by == episode_log.OPERATOR
    began = np.count_nonzero(is_operator[1:] & ~is_operator[:-1]) + int(is_operator[0])
    values = (
        *(begin["episode"], str(begin["robot"]), policy_name(policy), str(policy.get("digest"))),
        *(logged.end.get("outcome", episode_log.UNKNOWN), str(logged.end.get("how", "unfinished"))),
        *(float(began), json.dumps(begin["start"], sort_keys=True)),
    )
    return dict(zip(FACTS, values, strict=True))


def policy_name(policy: dict) -> str:
    """What a log calls the policy."""
    version = policy.get("version")
    return f"{policy.get('name')}{f'/{version}' if version else ''}"


def _described(value: object) -> str:
    if isinstance(value, episode_log.Png):
        return f"image[{value.shape[0]}, {value.shape[1]}]"
    assert isinstance(value, np.ndarray)
    return f"{value.dtype}{list(value.shape)}"
