"""A small real environment: a point in the plane is pushed to a goal. Fast, exact, with images."""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

from rrf.config import configclass
from rrf.data.schema import Observation
from rrf.envs import ENVS
from rrf.envs.configs import VecEnvCfg
from rrf.envs.vec_env import InitialState, Step, check_actions
from rrf.policies.policy import Sample

TASKS = ("reach", "far")
SPEED = 0.1  # distance per action step and unit of action
REACHED = 0.15  # distance to the goal that counts as solved


@configclass
class PointMassCfg(VecEnvCfg):
    """What protocols ask of it."""

    simulator: typing.ClassVar[str] = "point mass"

    @property
    def action_dim(self) -> int:
        return PointMassVecEnv.action_dim

    @property
    def tasks(self) -> Sequence[str]:
        return TASKS

    @property
    def num_initial_states(self) -> int:
        return 50


ENVS.register("point", f"{__name__}:PointMassCfg")


@dataclasses.dataclass
class _Slot:
    state: InitialState
    position: np.ndarray
    goal: np.ndarray
    steps: int = 0
    ended: bool = False


class PointMassVecEnv:
    """Task "reach" puts the goal near, "far" out of reach of a short horizon. Implements
    `VecEnv`.
    """

    action_dim = 2
    state_dim = 4
    fps = 10

    def __init__(
        self, num_envs: int, chunk_length: int = 2, max_episode_steps: int = 12, size: int = 8
    ):
        self.num_envs = num_envs
        self.chunk_length = chunk_length
        self.max_episode_steps = max_episode_steps
        self.size = size
        self.num_steps = 0  # slots stepped in all, to see that ended ones are left out
        self._slots: list[_Slot | None] = [None] * num_envs

    def reset(self, initial_states, env_ids=None) -> Observation:
        env_ids = range(self.num_envs) if env_ids is None else env_ids
        for slot, state in zip(env_ids, initial_states, strict=True):
            rng = np.random.default_rng([state.seed, state.index, len(state.task)])
            distance = {"reach": 0.6, "far": 5.0}[state.task]
            angle = rng.uniform(0, 2 * np.pi)
            start = rng.uniform(-0.2, 0.2, 2)
            goal = start + distance * np.array([np.cos(angle), np.sin(angle)])
            self._slots[slot] = _Slot(state, start, goal)
        return self._observe(env_ids)

    def step(self, actions, env_ids=None) -> Step:
        env_ids = list(range(self.num_envs) if env_ids is None else env_ids)
        check_actions(actions, env_ids, self.chunk_length, self.action_dim)
        self.num_steps += len(env_ids)
        reward, steps = np.zeros(len(env_ids), np.float32), np.zeros(len(env_ids), np.int64)
        success, truncated = np.zeros(len(env_ids), bool), np.zeros(len(env_ids), bool)
        for row, slot in enumerate(self._slots[i] for i in env_ids):
            assert slot is not None
            if slot.ended:
                raise ValueError(f"slot {env_ids[row]} has ended")
            for action in np.clip(actions[row], -1, 1):
                slot.position = slot.position + SPEED * action
                slot.steps += 1
                steps[row] += 1
                distance = float(np.linalg.norm(slot.goal - slot.position))
                reward[row] -= distance
                success[row] = distance < REACHED
                truncated[row] = not success[row] and slot.steps >= self.max_episode_steps
                if success[row] or truncated[row]:
                    slot.ended = True
                    break
        return Step(
            self._observe(env_ids),
            reward,
            success.copy(),
            truncated,
            success,
            steps,
            {"time_outs": truncated},
        )

    def close(self) -> None:
        pass

    def _observe(self, env_ids) -> Observation:
        slots = [slot for slot in (self._slots[i] for i in env_ids) if slot is not None]
        state = np.stack([np.concatenate([s.position, s.goal]) for s in slots]).astype(np.float32)
        images = np.zeros((len(slots), self.size, self.size, 3), np.uint8)
        for row, slot in enumerate(slots):
            column = int(np.clip((slot.position[0] + 1) * self.size / 2, 0, self.size - 1))
            images[row, :, column] = 255
        return Observation({"top": images}, state, [s.state.task for s in slots])


class GoTowards:
    """Heads for the goal; with `noise`, samples around that direction."""

    chunk_length = 4
    action_dim = 2

    def __init__(self, noise: float = 0.0):
        self.noise = noise
        self.batch_sizes: list[int] = []

    def sample(self, observation: Observation, generator=None, greedy: bool = False) -> Sample:
        self.batch_sizes.append(len(observation))
        away = observation.state[:, 2:] - observation.state[:, :2]
        action = away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-6)
        if not greedy and self.noise:
            import torch

            noise = torch.randn(action.shape, generator=generator).numpy()
            action = action + self.noise * noise
        return Sample(np.repeat(action[:, None], self.chunk_length, 1).astype(np.float32), None, {})
