"""Videos of a few evaluated episodes, rendered anew at any size by replaying the recorded
actions.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from rrf import atomic
from rrf.envs.vec_env import Step, VecEnv
from rrf.evaluation.results import EpisodeResult


def choose_for_video(episodes: Sequence[EpisodeResult], limit: int) -> list[EpisodeResult]:
    """At most `limit` episodes, one success and one failure of each task where they exist, then
    second ones.

    Tasks take turns in showing a success or a failure first, so that a small limit still shows both
    kinds.
    """
    by_kind: dict[tuple[str, bool], list[EpisodeResult]] = {}
    for episode in episodes:
        by_kind.setdefault((episode.task, episode.success), []).append(episode)
    tasks = dict.fromkeys(e.task for e in episodes)
    longest = max((len(found) for found in by_kind.values()), default=0)
    chosen = [
        by_kind[kind][depth]
        for depth in range(longest)
        for turn in range(2)
        for position, task in enumerate(tasks)
        if len(by_kind.get(kind := (task, (position + turn) % 2 == 0), [])) > depth
    ]
    order = {e.initial_state: position for position, e in enumerate(episodes)}
    return sorted(chosen[:limit], key=lambda e: order[e.initial_state])


def replay(env: VecEnv, episodes: Sequence[EpisodeResult], camera: str) -> list[np.ndarray]:
    """Frames of recorded episodes, uint8 [T + 1, H, W, 3] each, from executing their actions again
    one by one.

    `env` has the image size wanted and `chunk_length=1`; the dynamics depend on neither.

    Raises:
        ValueError: If an episode does not end as recorded: the environment is not the same one.
    """
    frames = []
    for start in range(0, len(episodes), env.num_envs):
        frames += _replay_together(env, episodes[start : start + env.num_envs], camera)
    return frames


def save_videos(
    folder: str | Path, episodes: Sequence[EpisodeResult], frames: Sequence[np.ndarray], fps: int
) -> list[dict]:
    """Write `<folder>/videos/`: an mp4 and a poster (the last frame) per episode.

    Returns:
        The entries of `EvaluationReport.videos`, their paths relative to `folder`.
    """
    from rrf.envs.video import write_video

    entries = []
    for episode, images in zip(episodes, frames, strict=True):
        outcome = "success" if episode.success else "failure"
        task = episode.task.replace(" ", "-")
        path = Path("videos") / f"{task}-{episode.index:02d}-{outcome}.mp4"
        write_video(Path(folder) / path, images, fps)
        poster = io.BytesIO()
        Image.fromarray(images[-1]).save(poster, "JPEG", quality=88)
        atomic.write_bytes((Path(folder) / path).with_suffix(".jpg"), poster.getvalue())
        facts = {"task": episode.task, "index": episode.index, "success": episode.success}
        entries.append(facts | {"path": path.as_posix()})
    return entries


def _replay_together(
    env: VecEnv, episodes: Sequence[EpisodeResult], camera: str
) -> list[np.ndarray]:
    running = list(range(len(episodes)))  # episode i runs in slot i
    observation = env.reset([e.initial_state for e in episodes], env_ids=running)
    frames = [[observation.images[camera][slot]] for slot in running]
    at = 0
    while running:
        actions = np.stack([_recorded(episodes[slot])[at : at + 1] for slot in running])
        step = env.step(actions, env_ids=running)
        at += 1
        for row, slot in enumerate(running):
            frames[slot].append(step.observation.images[camera][row])
            _check_replayed(episodes[slot], step, row, at)
        running = [slot for slot in running if episodes[slot].steps > at]
    return [np.stack(sequence) for sequence in frames]


def _recorded(episode: EpisodeResult) -> np.ndarray:
    assert episode.actions is not None, (
        "only an episode evaluated by this process carries its actions"
    )
    return episode.actions


def _check_replayed(episode: EpisodeResult, step: Step, row: int, steps: int) -> None:
    ended = bool(step.terminated[row] or step.truncated[row])
    if ended != (steps == episode.steps) or (ended and bool(step.success[row]) != episode.success):
        raise ValueError(
            f"{episode.task} from initial state {episode.index} did not replay as recorded: "
            f"at step {steps} of {episode.steps} ended is {ended}, success "
            f"{bool(step.success[row])}"
        )
