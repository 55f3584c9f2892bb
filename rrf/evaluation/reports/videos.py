"""Videos of an evaluation: the choice of episodes, and the files."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from rrf import atomic
from rrf.evaluation.results import EpisodeResult


def choose_for_video(episodes: Sequence[EpisodeResult], limit: int) -> list[EpisodeResult]:
    """Choose at most `limit` episodes.

    First comes one success and one failure of each task, if they exist, then a second one of each,
    and so on. Successes and failures alternate between tasks, so that even a small limit shows
    both.
    """
    by_kind: dict[tuple[str, bool], list[EpisodeResult]] = {}
    for episode in episodes:
        by_kind.setdefault((episode.task, episode.success), []).append(episode)
    tasks = dict.fromkeys(e.task for e in episodes)
    longest = max(map(len, by_kind.values()), default=0)
    chosen = [
        by_kind[kind][depth]
        for depth in range(longest)
        for turn in range(2)
        for position, task in enumerate(tasks)
        if len(by_kind.get(kind := (task, (position + turn) % 2 == 0), [])) > depth
    ]
    order = {e.initial_state: position for position, e in enumerate(episodes)}
    return sorted(chosen[:limit], key=lambda e: order[e.initial_state])


def save_videos(
    folder: str | Path, episodes: Sequence[EpisodeResult], frames: Sequence[np.ndarray], fps: int
) -> list[dict]:
    """Write `<folder>/videos/`: an mp4 and a poster (the last frame) per episode.

    Returns:
        The entries of `Evaluation.videos`, with paths relative to `folder`.

    Raises:
        ValueError: For a task whose name leads out of `folder`.
    """
    from rrf.envs.rendering.video import write_video

    entries = []
    for episode, images in zip(episodes, frames, strict=True):
        outcome = "success" if episode.success else "failure"
        task = episode.task.replace(" ", "-")
        name = f"videos/{task}-{episode.index:02d}-{outcome}.mp4"
        path = atomic.inside(folder, name, f"the video of task '{episode.task}'")
        write_video(path, images, fps)
        poster = io.BytesIO()
        Image.fromarray(images[-1]).save(poster, "JPEG", quality=88)
        atomic.write_bytes(path.with_suffix(".jpg"), poster.getvalue())
        facts = {"task": episode.task, "index": episode.index, "success": episode.success}
        entries.append(facts | {"path": name})
    return entries
