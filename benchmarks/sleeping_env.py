"""An environment and a rollout that only sleep: simulated costs, to measure what overlaps."""

import time
import types
import typing
from collections.abc import Sequence

import numpy as np

from rrf.config import configclass
from rrf.data.schema import Observation
from rrf.envs.configs import VecEnvCfg
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step
from rrf.policies.policy import Sample

TASK = "sleep"


@configclass(builds="benchmarks.sleeping_env:SleepingEnv")
class SleepingEnvCfg(VecEnvCfg):
    """An environment whose chunk takes a given time in each slot."""

    simulator: typing.ClassVar[str] = "sleep"

    chunk_s: float = 0.01
    """Seconds of a chunk in one slot."""

    @property
    def action_dim(self) -> int:
        return 1

    @property
    def tasks(self) -> Sequence[str]:
        return (TASK,)

    @property
    def num_initial_states(self) -> int:
        return 1_000_000


class SleepingEnv:
    """See `rrf.envs.vec_env.VecEnv`."""

    state_dim, fps = 1, 10

    def __init__(self, cfg: SleepingEnvCfg):
        self.cfg, self.num_envs, self.chunk_length = cfg, cfg.num_envs, cfg.chunk_length
        self.max_episode_steps, self.action_dim = cfg.max_episode_steps, cfg.action_dim
        self._slots, self._steps = Slots(cfg.num_envs), np.zeros(cfg.num_envs, np.int64)

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """See `VecEnv.reset`."""
        check = self.cfg.check_initial_state
        slots = self._slots.check_reset(initial_states, env_ids, check)
        self._slots.begin(slots)
        self._steps[slots] = 0
        return self._seen(slots)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """See `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        time.sleep(self.cfg.chunk_s * len(slots))
        self._steps[slots] += self.chunk_length
        is_over = self._steps[slots] >= self.max_episode_steps
        nothing = np.zeros(len(slots), bool)
        steps = np.full(len(slots), self.chunk_length)
        return self._slots.finish_step(
            slots, self._seen(slots), nothing.astype(np.float32), nothing, is_over, steps
        )

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._slots.close()

    def _seen(self, slots: Sequence[int]) -> Observation:
        return Observation({}, np.zeros((len(slots), 1), np.float32), [TASK] * len(slots))


class SleepingRollout:
    """A rollout whose forward pass takes a given time per row."""

    policy = types.SimpleNamespace(action_dim=1, num_values=0)
    version = sync_bytes = 0

    def __init__(self, row_s: float, batch_rows: int, chunk_length: int):
        self._row_s, self.batch_rows, self._chunk_length = row_s, batch_rows, chunk_length

    def act(self, observation: Observation, generators: object) -> Sample:
        """Choose zeros."""
        time.sleep(self._row_s * len(observation))
        zeros = np.zeros((len(observation), self._chunk_length, 1), np.float32)
        return Sample(actions=zeros, log_prob=None, replay={}, value=None)
