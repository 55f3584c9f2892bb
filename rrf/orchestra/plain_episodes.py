"""Played episodes as builtins and NumPy arrays, for an actor elsewhere."""

import dataclasses
import typing

import numpy as np
import torch

from rrf.envs.vec_env import InitialState
from rrf.orchestra import env_role
from rrf.storage.trajectories import Job, PlayedEpisode

_TENSORS = ("log_prob", "value")
_ARRAYS = ("reward", "steps")
_FACTS = ("success", "truncated", "final_value", "policy_version", "reset_digest")


def to_plain(episode: PlayedEpisode) -> dict[str, typing.Any]:
    """An episode that kept its observations; what an expert recorded is left out."""
    assert episode.observation is not None
    return {
        "job": dataclasses.asdict(episode.job),
        "observation": env_role.to_plain(episode.observation),
        "replay": {name: values.numpy() for name, values in episode.replay.items()},
        **{name: getattr(episode, name).numpy() for name in _TENSORS},
        **{name: getattr(episode, name) for name in (*_ARRAYS, *_FACTS)},
    }


def from_plain(plain: dict[str, typing.Any]) -> PlayedEpisode:
    """The inverse of `to_plain`. Its arrays may be read-only."""
    job = plain["job"]
    return PlayedEpisode(
        job=Job(job["id"], job["group"], InitialState(**job["initial_state"])),
        observation=env_role.from_plain(plain["observation"]),
        replay={name: _tensor(values) for name, values in plain["replay"].items()},
        **{name: _tensor(plain[name]) for name in _TENSORS},
        **{name: np.array(plain[name]) for name in _ARRAYS},
        **{name: plain[name] for name in _FACTS},
    )


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
