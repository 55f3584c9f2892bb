"""Environments small enough to check by hand."""

import torch
from tensordict import TensorDict

from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import EnvState, Interface, check_actions


@configclass(builds="tests.envs.toy:Corridor")
class CorridorCfg(ControlEnvCfg):
    """Walk along a line towards 1; each step costs the distance to it."""

    task: str = "Corridor"
    num_envs: int = 8
    length: int = 10
    """Steps until the time limit."""
    hides_position: bool = False
    """The policy sees where it started and no more: it must remember its steps."""


class OnALine:
    """The state of a toy whose environments are points on a line."""

    position: torch.Tensor
    episode_length_buf: torch.Tensor
    generator: torch.Generator

    def state(self):
        tensors = {
            "position": self.position,
            "length": self.episode_length_buf,
            "generator": self.generator.get_state(),
        }
        return EnvState(tensors, {})

    def load_state(self, state):
        self.position = state.tensors["position"].clone()
        self.episode_length_buf = state.tensors["length"].clone()
        self.generator.set_state(state.tensors["generator"])

    def close(self):
        pass


class Corridor(OnALine):
    """Observation: position (group "policy"), and for the critic the time left as well."""

    def __init__(self, cfg: CorridorCfg, seed: int = 0, device: str = "cpu"):
        self.cfg, self.num_envs, self.num_actions, self.device = cfg, cfg.num_envs, 1, device
        self.max_episode_length = cfg.length
        self.interface = Interface({"policy": 1, "critic": 2}, 1, step_dt=0.1, task=cfg.task)
        self.generator = torch.Generator().manual_seed(seed)
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64)
        self.position = torch.zeros(cfg.num_envs)
        self.reset()

    def reset(self):
        self.position = torch.rand(self.num_envs, generator=self.generator) - 1.0
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64)
        return self.get_observations(), {}

    def get_observations(self) -> TensorDict:
        shown = self.position
        if self.cfg.hides_position:
            shown = torch.where(self.episode_length_buf == 0, self.position, 0.0)
        left = 1 - self.episode_length_buf / self.cfg.length
        groups = {
            "policy": shown.unsqueeze(-1).clone(),
            "critic": torch.stack([self.position, left], -1),
        }
        return TensorDict(groups, batch_size=[self.num_envs])

    def step(self, actions):
        check_actions(actions, self.num_envs, 1)
        self.position = self.position + 0.2 * actions[:, 0].clamp(-1, 1)
        self.episode_length_buf += 1
        rewards = -(self.position - 1).abs()
        terminated = self.position < -2
        time_outs = (self.episode_length_buf >= self.cfg.length) & ~terminated
        dones = terminated | time_outs
        final = self.get_observations()[dones] if dones.any() else None
        fresh = torch.rand(self.num_envs, generator=self.generator) - 1.0
        self.position = torch.where(dones, fresh, self.position)
        self.episode_length_buf[dones] = 0
        extras = {"time_outs": time_outs, "final_obs": final, "log": {"distance": -rewards.mean()}}
        return self.get_observations(), rewards, dones, extras


class Poisoned(Corridor):
    """Returns NaN in its steps number `at`, counted from 1."""

    def __init__(self, cfg: CorridorCfg, *at: int):
        super().__init__(cfg)
        self.at, self.num_steps = at, 0

    def step(self, actions):
        observations, rewards, dones, extras = super().step(actions)
        self.num_steps += 1
        if self.num_steps in self.at:
            rewards[3] = float("nan")
        return observations, rewards, dones, extras
