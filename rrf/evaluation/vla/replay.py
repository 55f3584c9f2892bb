"""Render evaluated episodes again, at any image size, by replaying their recorded actions."""

from collections.abc import Sequence

import numpy as np

from rrf.envs.vec_env import Step, VecEnv
from rrf.evaluation.results import EpisodeResult


def replay(env: VecEnv, episodes: Sequence[EpisodeResult], camera: str) -> list[np.ndarray]:
    """Execute recorded actions again, one by one; frames uint8 [T + 1, H, W, 3] of each episode.

    `env` must have `chunk_length=1` and may have any image size; the dynamics depend on neither.

    Raises:
        ValueError: If an episode does not end as recorded, because the environment has changed.
    """
    frames = []
    for start in range(0, len(episodes), env.num_envs):
        frames += _replay_together(env, episodes[start : start + env.num_envs], camera)
    return frames


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
