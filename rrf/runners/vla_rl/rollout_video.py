"""Played episodes as one video: captioned tiles side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rrf.envs.rendering.video import border, caption, enlarge, tile_episodes, write_video
from rrf.runners.vla_rl.film_configs import FilmCfg
from rrf.storage.trajectories import PlayedEpisode

_TILE_PX = 160
_HOLD_FRAMES = 6


def write_grid(
    path: Path, episodes: Sequence[PlayedEpisode], camera: str, title: str, cfg: FilmCfg
) -> None:
    """Write a video of some episodes, from the images that the policy saw.

    Args:
        path: The MP4 file.
        episodes: Episodes with their observations.
        camera: The camera whose images are shown.
        title: Part of every caption, e.g. "round 8".
        cfg: Which episodes are shown, and what is written below them.
    """
    tiles = [_frames(episode, camera, title, cfg) for episode in _shown(episodes, cfg.tiles)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, tile_episodes(tiles), fps=cfg.fps)


def _shown(episodes: Sequence[PlayedEpisode], most: int | None) -> list[PlayedEpisode]:
    """The first episode of each task, then the second of each, and so on, up to `most`."""
    by_task: dict[str, list[PlayedEpisode]] = {}
    for episode in episodes:
        by_task.setdefault(episode.job.initial_state.task, []).append(episode)
    if most is None:
        return [of_task[0] for of_task in by_task.values()]
    longest = max(map(len, by_task.values()))
    turns = [[e[n] for e in by_task.values() if n < len(e)] for n in range(longest)]
    return [episode for turn in turns for episode in turn][:most]


def _frames(episode: PlayedEpisode, camera: str, title: str, cfg: FilmCfg) -> list[np.ndarray]:
    assert episode.observation is not None, "a video needs the observations of its episodes"
    state = episode.job.initial_state
    images = [enlarge(image, _TILE_PX) for image in episode.observation.images[camera]]
    running = f"{state.task.removesuffix('-v3')} {state.index} {title}"
    end = "solved" if episode.success else "failed"
    frames = [(border(image, None), running) for image in images]
    frames += [(border(images[-1], episode.success), f"{end} after {episode.num_steps} steps")]
    captioned = [caption(*frame) for frame in frames]
    if cfg.numbers:
        captioned = [caption(*frame) for frame in zip(captioned, _numbers(episode), strict=True)]
    return captioned + captioned[-1:] * (_HOLD_FRAMES - 1)


def _numbers(episode: PlayedEpisode) -> list[str]:
    """Of each frame: steps so far, the environment's reward of the last chunk, and their sum."""
    steps = np.concatenate([[0], np.cumsum(episode.steps)])
    rewards = np.concatenate([[0.0], episode.reward])
    returns = np.cumsum(rewards)
    rows = zip(steps, rewards, returns, strict=True)
    return [f"{step}  r {reward:.2f}  R {total:.2f}" for step, reward, total in rows]
