"""Played episodes as one video: one captioned tile per task."""

from collections.abc import Sequence
from pathlib import Path

from rrf.envs.rendering.video import border, caption, enlarge, tile_episodes, write_video
from rrf.storage.trajectories import PlayedEpisode

_TILE_PX = 160
_HOLD_FRAMES = 6


def write_grid(path: Path, episodes: Sequence[PlayedEpisode], camera: str, title: str) -> None:
    """Write a video of the first episode of each task, from the images that the policy saw.

    Args:
        path: The MP4 file.
        episodes: Episodes with their observations.
        camera: The camera whose images are shown.
        title: Part of every caption, e.g. "round 8".
    """
    first: dict[str, PlayedEpisode] = {}
    for episode in episodes:
        first.setdefault(episode.job.initial_state.task, episode)
    tiles = [_frames(episode, camera, title) for episode in first.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, tile_episodes(tiles), fps=4)


def _frames(episode: PlayedEpisode, camera: str, title: str) -> list:
    assert episode.observation is not None, "a video needs the observations of its episodes"
    state = episode.job.initial_state
    images = [enlarge(image, _TILE_PX) for image in episode.observation.images[camera]]
    running = f"{state.task.removesuffix('-v3')} {state.index} {title}"
    frames = [caption(border(image, None), running) for image in images]
    end = "solved" if episode.success else "failed"
    last = caption(border(images[-1], episode.success), f"{end} after {episode.num_steps} steps")
    return frames + [last] * _HOLD_FRAMES
