"""The toy simulator: places in [-1, 1]^2, a dot moved by at most 0.25 per action step.

Legend: B slots of a call, H steps in a chunk.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, check_actions

from .configs import INSTRUCTIONS, ToyCfg

SPEED, REACHED = 0.25, 0.3
_COLORS = {"reach-red": (230, 40, 40), "reach-blue": (40, 40, 230)}


@dataclasses.dataclass
class _Episode:
    task: str
    dot: np.ndarray  # [2]
    squares: dict[str, np.ndarray]  # task -> [2]
    num_actions: int = 0

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.dot - self.squares[self.task]))


class ToyVecEnv:
    """See `rrf.envs.vec_env.VecEnv`."""

    state_dim = 2
    fps = 10

    def __init__(self, cfg: ToyCfg):
        self.cfg = cfg
        self.num_envs, self.chunk_length = cfg.num_envs, cfg.chunk_length
        self.max_episode_steps, self.action_dim = cfg.max_episode_steps, cfg.action_dim
        self._slots = Slots(cfg.num_envs)
        self._episodes: dict[int, _Episode] = {}

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """See `VecEnv.reset`."""
        slots = self._slots.check_reset(initial_states, env_ids, self.cfg.check_initial_state)
        for slot, state in zip(slots, initial_states, strict=True):
            self._episodes[slot] = episode_of(state)
        self._slots.begin(slots)
        return self._observe(slots)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """See `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        chunks = dict(zip(slots, actions, strict=True))
        rows = [self._run(self._episodes[slot], chunk) for slot, chunk in chunks.items()]
        reward, success, truncated, steps = map(np.array, zip(*rows, strict=True))
        return self._slots.finish_step(
            slots, self._observe(slots), reward.astype(np.float32), success, truncated, steps
        )

    def expert_action(self, env_id: int) -> np.ndarray:
        """See `rrf.envs.vec_env.ExpertVecEnv`."""
        return expert(self._episodes[env_id]).astype(np.float32)

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._slots.close()

    def _run(self, episode: _Episode, chunk: np.ndarray) -> tuple[float, bool, bool, int]:
        """Execute a chunk until the episode ends: reward, success, truncated, steps."""
        began, reward, success, truncated = episode.num_actions, 0.0, False, False
        for action in np.clip(chunk, -1, 1):
            for _ in range(self.cfg.action_repeat):
                moved = episode.dot + SPEED / self.cfg.action_repeat * action
                episode.dot = np.clip(moved, -1, 1).astype(np.float32)
            episode.num_actions += 1
            success = episode.distance < REACHED
            truncated = not success and episode.num_actions >= self.cfg.horizon(episode.task)
            reward += float(success)
            if success or truncated:
                break
        return reward, success, truncated, episode.num_actions - began

    def _observe(self, slots: Sequence[int]) -> Observation:
        episodes = [self._episodes[slot] for slot in slots]
        size = self.cfg.image_size
        images = {c: np.stack([draw(e, size) for e in episodes]) for c in self.cfg.cameras}
        state = np.stack([episode.dot for episode in episodes])
        return Observation(images, state, [INSTRUCTIONS[episode.task] for episode in episodes])


def episode_of(state: InitialState) -> _Episode:
    """The episode that an initial state stands for, at its beginning."""
    key = [state.seed, state.index, list(INSTRUCTIONS).index(state.task)]
    rng = np.random.default_rng(key)
    while True:
        dot, red, blue = rng.uniform(-0.9, 0.9, (3, 2)).astype(np.float32)
        apart = [np.linalg.norm(a - b) for a, b in ((dot, red), (dot, blue), (red, blue))]
        if min(apart) > 0.7:
            return _Episode(state.task, dot, {"reach-red": red, "reach-blue": blue})


def draw(episode: _Episode, size: int) -> np.ndarray:
    """The scene from above, uint8 [size, size, 3]; the y axis points up."""
    image = np.full((size, size, 3), 30, np.uint8)
    for task, place in episode.squares.items():
        _stamp(image, place, _COLORS[task], size // 5)
    _stamp(image, episode.dot, (240, 240, 240), size // 8)
    return image


def expert(episode: _Episode) -> np.ndarray:
    """The action that goes straight to the square, [2]."""
    return np.clip((episode.squares[episode.task] - episode.dot) / SPEED, -1, 1)


def _stamp(image: np.ndarray, place: np.ndarray, color: tuple[int, int, int], side: int) -> None:
    size = len(image)
    column, row = (np.array([place[0], -place[1]]) + 1) / 2 * (size - side)
    row, column = round(float(row)), round(float(column))
    image[row : row + side, column : column + side] = color
