"""A line with a small reward around the start and a large one far away."""

import torch
from tensordict import TensorDict

from rrf.config import configclass
from rrf.envs.control_configs import ControlEnvCfg
from rrf.envs.control_env import EnvState, Interface, check_actions

NEAR_EDGE, FAR_EDGE = 1.4, 1.9
LENGTH = 30


@configclass(builds="tests.control.two_goals:TwoGoals")
class TwoGoalsCfg(ControlEnvCfg):
    """Each step near the start (up to 1.4 away) earns 0.1, each beyond 1.9 on one side 1."""

    task: str = "TwoGoals"
    num_envs: int = 32


class TwoGoals:
    """Observation: the position; an action moves it by up to 0.2. An episode is 30 steps."""

    def __init__(self, cfg: TwoGoalsCfg, seed: int = 0, device: str = "cpu"):
        self.cfg, self.num_envs, self.num_actions, self.device = cfg, cfg.num_envs, 1, device
        self.max_episode_length = LENGTH
        self.interface = Interface({"policy": 1}, 1, task=cfg.task)
        self.episode_length_buf = torch.zeros(cfg.num_envs, dtype=torch.int64)
        self.position = torch.zeros(cfg.num_envs)

    def reset(self):
        self.position = torch.zeros(self.num_envs)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64)
        return self.get_observations(), {}

    def get_observations(self) -> TensorDict:
        observed = self.position.unsqueeze(-1).clone()
        return TensorDict({"policy": observed}, batch_size=[self.num_envs])

    def step(self, actions):
        check_actions(actions, self.num_envs, 1)
        self.position = self.position + 0.2 * actions[:, 0].clamp(-1, 1)
        self.episode_length_buf = self.episode_length_buf + 1
        near = self.position.abs() < NEAR_EDGE
        far = self.position > FAR_EDGE
        rewards = 0.1 * near + 1.0 * far
        dones = self.episode_length_buf >= LENGTH
        final = self.get_observations()[dones] if dones.any() else None
        self.position = torch.where(dones, 0.0, self.position)
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf)
        extras = {"time_outs": dones, "final_obs": final, "log": {}}
        return self.get_observations(), rewards, dones, extras

    def state(self):
        return EnvState({"position": self.position, "length": self.episode_length_buf}, {})

    def load_state(self, state):
        self.position = state.tensors["position"].clone()
        self.episode_length_buf = state.tensors["length"].clone()

    def close(self):
        pass


def greedy_return(policy) -> float:
    """What the deployed policy earns in one episode; 3 at most without the far goal."""
    env = TwoGoalsCfg(num_envs=1).build()
    deployed = policy.deployable()
    total = 0.0
    for _ in range(LENGTH):
        _, rewards, _, _ = env.step(deployed.act(env.get_observations()))
        total += rewards.item()
    return total
