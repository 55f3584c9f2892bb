"""A point that moves, with a reference motion: a sine between -1 and 1."""

import math

import torch
from tensordict import TensorDict

from rrf.config import configclass
from rrf.envs.control_env import Interface
from tests.envs.toy import Corridor, CorridorCfg


@configclass(builds="tests.algorithms.imitation.walker:Walker")
class WalkerCfg(CorridorCfg):
    """Each action moves the point; the task pays nothing. The policy sees position and time."""

    task: str = "Walker"
    num_envs: int = 64
    length: int = 40
    period: int = 20
    """Steps of the reference motion from the middle to both ends and back."""


class Walker(Corridor):
    """Group "amp": the position. An episode ends where the point is farther out than 3."""

    pose_width = 1

    def __init__(self, cfg: WalkerCfg, seed: int = 0, device: str = "cpu"):
        super().__init__(cfg, seed, device)
        self.interface = Interface({"policy": 3, "amp": 1}, 1, step_dt=0.1, task=cfg.task)

    def get_observations(self) -> TensorDict:
        angle = 2 * math.pi * self.episode_length_buf / self.cfg.period
        groups = {
            "policy": torch.stack([self.position, angle.sin(), angle.cos()], -1),
            "amp": self.frames(),
        }
        return TensorDict(groups, batch_size=[self.num_envs])

    def frames(self) -> torch.Tensor:
        return self.position.unsqueeze(-1).clone()

    def reference_frames(self) -> list[torch.Tensor]:
        steps = torch.arange(2 * self.cfg.period + 1)
        return [torch.sin(2 * math.pi * steps / self.cfg.period).unsqueeze(-1)]

    def step(self, actions):
        self.position = self.position + 0.5 * actions[:, 0].clamp(-1, 1)
        self.episode_length_buf += 1
        terminated = self.position.abs() > 3
        time_outs = (self.episode_length_buf >= self.cfg.length) & ~terminated
        dones = terminated | time_outs
        final = self.get_observations()[dones] if dones.any() else None
        fresh = torch.rand(self.num_envs, generator=self.generator) - 0.5
        self.position = torch.where(dones, fresh, self.position)
        self.episode_length_buf[dones] = 0
        extras = {"time_outs": time_outs, "final_obs": final, "log": {}}
        return self.get_observations(), torch.zeros(self.num_envs), dones, extras
