"""ManiSkill trajectories: NAME.h5 holds the arrays, NAME.json tells what made them.

    /traj_0/actions             f32[T, A], or a group with an array per robot
    /traj_0/{terminated, truncated, success, fail, rewards}   [T]
    /traj_0/obs/...             [T+1, ...], nested: agent/qpos, extra/tcp_pose,
                                sensor_data/<camera>/rgb u8[T+1, H, W, 3]
    /traj_0/env_states/{actors, articulations}/<name>         [T+1, ...]
    NAME.json                   env_info, source_type, episodes: [{episode_id, episode_seed,
                                control_mode, elapsed_steps, success}, ...]

Layout: https://github.com/haosulab/ManiSkill, mani_skill/utils/wrappers/record.py. The observation
and state after the last action are dropped. Poses are position (3) and quaternion (4), WXYZ. The
files hold no instruction.

Legend: T actions of an episode, A action dimension, H W image height and width.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import h5py

from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5, hdf5_trajectories
from rrf.data.formats.json_files import read_object
from rrf.data.formats.source_audit import failures
from rrf.data.raw import OneByOne, RawEpisode, Recording

_PREFIX = "traj_"


@configclass
class ManiSkillOptions(Cfg):
    """Options of the format maniskill."""

    pattern: str = "**/*.h5"
    """Which files in the directory. Replays with other controllers often lie beside each other."""
    only_successful: bool = True
    """Leave out trajectories that the .json says have failed."""


class ManiSkillSource(OneByOne):
    """Reads ManiSkill trajectory files; each file is a recording."""

    def __init__(self, path: Path, options: dict):
        self._options = ManiSkillOptions.from_dict(options)
        self._path = Path(path)
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> list[str]:
        """How many trajectories of the files read so far have failed."""
        return list(self._warnings)

    def recordings(self) -> list[Recording]:
        """One recording per file.

        Raises:
            ValueError: If there are none, if a .json is missing or names other trajectories, or if
                the actions of two files mean different things (control_mode).
        """
        recordings = []
        modes: dict[str, str] = {}
        for path in self._files():
            name = hdf5.recording_name(path, self._path)
            with hdf5.open_file(path) as file:
                entries = _listed_episodes(file, _read_meta(path), path)
            for episode in entries.values():
                modes.setdefault(str(episode.get("control_mode")), path.name)
            num_episodes = len(self._wanted(entries, path))
            if num_episodes:
                paths = (path, path.with_suffix(".json"))
                recordings.append(Recording(name, paths, num_episodes))
        if not recordings:
            raise ValueError(
                f"all trajectories in {self._path} have failed; to keep them, write options: "
                "{only_successful: false}"
            )
        if len(modes) > 1:
            raise ValueError(
                f"{self._path} mixes control modes, so its actions mean different things: "
                + ", ".join(f"{mode} in {name}" for mode, name in modes.items())
                + "; choose files by the option pattern"
            )
        return recordings

    def keys(self) -> dict[str, str]:
        """What the first trajectory of the first file holds."""
        return hdf5_trajectories.keys(self._files()[0], _PREFIX)

    def readers(
        self, recording: Recording, keys: Sequence[str]
    ) -> Iterator[Callable[[], RawEpisode]]:
        """Of the trajectories of a file in the order of their numbers.

        Raises:
            ValueError: For damaged data; the message names file, trajectory and key.
        """
        hdf5_trajectories.check_keys(keys, self.keys(), self._path)
        path = recording.paths[0]
        meta = _read_meta(path)
        with hdf5.open_file(path) as file:
            for name, entry in self._wanted(_listed_episodes(file, meta, path), path).items():
                group = hdf5_trajectories.group_at(file, name, path)
                yield functools.partial(_episode, group, entry, keys, f"{path}:{name}", _fps(meta))

    def _files(self) -> list[Path]:
        return hdf5.find_files(self._path, self._options.pattern)

    def _wanted(self, entries: dict[str, dict], path: Path) -> dict[str, dict]:
        kept = {name: entry for name, entry in entries.items() if entry.get("success") is not False}
        if len(kept) == len(entries):
            return entries
        what = failures(len(entries) - len(kept), len(entries), self._options.only_successful)
        self._warnings[f"{path}: {what}"] = None
        return kept if self._options.only_successful else entries


def _episode(
    group: h5py.Group, entry: dict, keys: Sequence[str], where: str, fps: float | None
) -> RawEpisode:
    length = _length(group, entry, where)
    allowed_lengths = {"obs": (length + 1,), "env_states": (length + 1,)}
    return hdf5_trajectories.read(group, keys, length, allowed_lengths, where, fps)


def _read_meta(path: Path) -> dict:
    json_path = path.with_suffix(".json")
    if not json_path.is_file():
        raise ValueError(
            f"{path} has no {json_path.name} beside it; copy both, they are one dataset"
        )
    return read_object(json_path)


def _listed_episodes(file: h5py.File, meta: dict, path: Path) -> dict[str, dict]:
    """Trajectory name -> what the .json says about it."""
    listed = meta.get("episodes")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ValueError(f"{path.with_suffix('.json')} has no list 'episodes' of objects")
    by_name = {f"{_PREFIX}{entry.get('episode_id')}": entry for entry in listed}
    names = hdf5_trajectories.names(file, _PREFIX, path)
    if set(names) != set(by_name) or len(by_name) != len(listed):
        odd = sorted(set(names) ^ set(by_name)) or ["an episode_id twice"]
        raise ValueError(
            f"{path} holds {len(names)} trajectories, its .json lists {len(listed)} episodes "
            f"(not in both: {', '.join(odd[:5])}); one is cut short, or they do not belong together"
        )
    return {name: by_name[name] for name in names}


def _fps(meta: dict) -> float | None:
    """The control frequency in Hz, if it was set in the environment's arguments."""
    match meta:
        case {
            "env_info": {"env_kwargs": {"sim_config": {"control_freq": int() | float() as freq}}}
        }:
            return float(freq)
    return None


def _length(group: h5py.Group, entry: dict, where: str) -> int:
    datasets = hdf5.list_datasets(group, where)
    key = next((key for key in datasets if key.split("/")[0] == "actions"), None)
    if key is None:
        raise ValueError(f"{where} has no actions; found: {', '.join(group) or 'nothing'}")
    length = len(datasets[key]) if datasets[key].shape else 0
    if length == 0:
        raise ValueError(f"{where} has no steps in {key}")
    if entry.get("elapsed_steps", length) != length:
        raise ValueError(
            f"{where} has {length} actions, its .json says elapsed_steps {entry['elapsed_steps']}"
        )
    return length
