"""A toy that needs the past: what to do in the second half is shown only in the first.

In steps 0 and 1 the image is red or blue and the state is 1 or -1; then both say nothing. The
right action is 0 first, and then 0.8 for red and -0.8 for blue.
"""

import json

import numpy as np

from rrf.config import configclass
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Observation, Schema, Vector
from rrf.envs import ENVS
from rrf.envs.configs import VecEnvCfg
from rrf.envs.vec_env import Step, check_actions

LENGTH, SHOWN, SIZE, TASK = 4, 2, 8, "recall"
SCHEMA = Schema(
    fps=4,
    image_size=(SIZE, SIZE),
    cameras=("front",),
    state=Vector(("sign", "one"), "1"),
    action=Vector(("push",), "1", (-1.0,), (1.0,)),
    has_reward=False,
    has_success=False,
)


@configclass
class RecallCfg(VecEnvCfg):
    """What protocols ask of it."""

    @property
    def action_dim(self) -> int:
        return 1

    @property
    def num_initial_states(self) -> int:
        return 50


ENVS.register("recall", f"{__name__}:RecallCfg")


def frame(sign: int, step: int, shows: str) -> tuple[np.ndarray, np.ndarray]:
    """The image and the state; `shows` says which of them tells the sign."""
    told = sign if step < SHOWN else 0
    image = np.full((SIZE, SIZE, 3), 100, np.uint8)
    if told and shows == "image":
        image[:] = 0
        image[..., 0 if sign > 0 else 2] = 255
    return image, np.array([told if shows == "state" else 0, 1], np.float32)


def write_recall(root, shows: str, num_episodes: int = 16):
    """A published dataset."""
    episodes = []
    for number in range(num_episodes):
        sign = 1 if number // 2 % 2 else -1
        images, states = zip(*(frame(sign, t, shows) for t in range(LENGTH)), strict=True)
        action = [[0.0]] * SHOWN + [[0.8 * sign]] * (LENGTH - SHOWN)
        episodes.append(
            Episode(
                {"front": np.stack(images)}, np.stack(states), np.array(action, np.float32), TASK,
                f"synthetic:{number}",
            )
        )  # fmt: skip
    write_dataset(root, SCHEMA, iter(episodes))
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


class RecallVecEnv:
    """Implements `VecEnv`: solved if all actions of the second half have the sign that was
    shown."""

    action_dim, state_dim, fps, chunk_length, max_episode_steps = 1, 2, 4, 2, LENGTH

    def __init__(self, num_envs: int, shows: str):
        self.num_envs, self._shows = num_envs, shows
        self._slots = {}

    def reset(self, initial_states, env_ids=None):
        for slot, state in zip(env_ids, initial_states, strict=True):
            self._slots[slot] = [1 if state.index % 2 else -1, 0]
        return self._observe(env_ids)

    def step(self, actions, env_ids=None):
        check_actions(actions, env_ids, self.chunk_length, self.action_dim)
        slots = [self._slots[slot] for slot in env_ids]
        success = np.zeros(len(slots), bool)
        for row, slot in enumerate(slots):
            success[row] = slot[1] >= SHOWN and (actions[row] * slot[0] > 0.4).all()
            slot[1] += self.chunk_length
        over = np.array([slot[1] >= LENGTH for slot in slots])
        steps = np.full(len(slots), self.chunk_length)
        reward = success.astype(np.float32)
        return Step(
            self._observe(env_ids), reward, over & success, over & ~success, success, steps, {}
        )

    def close(self):
        pass

    def _observe(self, env_ids):
        frames = [frame(*self._slots[slot], self._shows) for slot in env_ids]
        images, states = zip(*frames, strict=True)
        return Observation({"front": np.stack(images)}, np.stack(states), [TASK] * len(frames))
