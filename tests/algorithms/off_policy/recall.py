"""The smallest task that needs a memory: a sign is shown once and asked for until the end."""

import torch
from tensordict import TensorDict

from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import Interface, check_actions

SIZE = 0.8  # of what is to be answered, within the reach of actions


@configclass(builds="tests.algorithms.off_policy.recall:Recall")
class RecallCfg(ControlEnvCfg):
    """Answer with the sign that stood in the first observation; a step costs the squared error.

    Who forgets cannot do better than the middle, which costs SIZE ** 2 in each step but the first.
    """

    task: str = "Recall"
    num_envs: int = 4
    length: int = 8
    """Steps of an episode; the sign is seen in the first."""


class Recall:
    """Observation: the sign in the first step, 0 after it; and whether it is the first."""

    def __init__(self, cfg: RecallCfg, seed: int = 0, device: str = "cpu"):
        self.cfg, self.num_envs, self.num_actions, self.device = cfg, cfg.num_envs, 1, device
        self.max_episode_length = cfg.length
        self.interface = Interface({"policy": 2}, 1, step_dt=0.1, task=cfg.task)
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64)
        self._generator = torch.Generator().manual_seed(seed)
        self._signs = self._drawn()

    def get_observations(self) -> TensorDict:
        is_first = (self.episode_length_buf == 0).float()
        shown = torch.stack([self._signs * is_first, is_first], -1)
        return TensorDict({"policy": shown}, batch_size=[self.num_envs])

    def step(self, actions):
        check_actions(actions, self.num_envs, 1)
        rewards = -((actions[:, 0] - SIZE * self._signs) ** 2)
        self.episode_length_buf += 1
        dones = self.episode_length_buf >= self.cfg.length
        final = self.get_observations()[dones] if dones.any() else None
        self._signs = torch.where(dones, self._drawn(), self._signs)
        self.episode_length_buf[dones] = 0
        extras = {"time_outs": torch.zeros_like(dones), "final_obs": final, "log": {}}
        return self.get_observations(), rewards, dones, extras

    def _drawn(self) -> torch.Tensor:
        return torch.randint(2, (self.num_envs,), generator=self._generator) * 2.0 - 1.0
