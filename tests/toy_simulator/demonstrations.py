"""Demonstrations of the toy tasks by their expert."""

import json
from pathlib import Path

import numpy as np

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Schema, Vector
from rrf.envs.vec_env import InitialState

from .configs import INSTRUCTIONS
from .env import SPEED, draw, episode_of, expert


def demonstrate(root: Path, episodes_per_task: int) -> None:
    """Write a dataset with statistics, of images of 16 px."""
    schema = Schema(
        fps=10,
        image_size=(16, 16),
        cameras=("top",),
        state=Vector(("x", "y"), "m"),
        action=Vector(("dx", "dy"), "1", (-1.0, -1.0), (1.0, 1.0)),
        has_reward=False,
        has_success=False,
    )
    states = [
        InitialState(task, 777, index)
        for index in range(episodes_per_task)
        for task in INSTRUCTIONS
    ]
    write_dataset(root, schema, [_demonstration(state) for state in states])
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))


def _demonstration(state: InitialState) -> Episode:
    episode, frames = episode_of(state), []
    while episode.distance > 0.1:
        action = expert(episode).astype(np.float32)
        frames.append((draw(episode, 16), episode.dot, action))
        episode.dot = (episode.dot + SPEED * action).astype(np.float32)
    images, states, actions = map(np.stack, zip(*frames, strict=True))
    return Episode({"top": images}, states, actions, INSTRUCTIONS[state.task], str(state))
