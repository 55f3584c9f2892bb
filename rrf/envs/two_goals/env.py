"""A line with a small reward around the start and a large one far away.

It shows whether an algorithm explores: a single policy settles for the small reward.
"""

import typing
from collections.abc import Sequence

import torch
from tensordict import TensorDict

from rrf.envs.control_env import EnvState, Interface, OfRslRl, check_actions
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg

NEAR_EDGE, FAR_EDGE = 1.4, 1.9
LENGTH = 30


class TwoGoals(OfRslRl):
    """The observation is the position. An action moves it by up to 0.2. An episode has 30 steps.

    A step near the start (up to 1.4 away) earns 0.1, and a step beyond 1.9 on one side earns 1. An
    episode that stays near the start earns 3; one that goes to the far side earns at most 21.6.
    """

    has_seeds: typing.ClassVar[bool] = True

    def __init__(self, cfg: TwoGoalsEnvCfg, seed: int = 0, device: torch.device | str = "cpu"):
        self.cfg, self.num_envs, self.num_actions = cfg, cfg.num_envs, 1
        self.device = torch.device(device)
        self.max_episode_length = LENGTH
        self.interface = Interface({"policy": 1}, 1, task=cfg.task)
        self.reset()

    def reset(self) -> tuple[TensorDict, dict]:
        self.position = torch.zeros(self.num_envs, device=self.device)
        self.episode_length_buf = torch.zeros_like(self.position, dtype=torch.int64)
        return self.get_observations(), {}

    def reset_envs(
        self,
        env_ids: Sequence[int],
        seeds: Sequence[int | None] | None = None,
        options: dict[str, typing.Any] | None = None,
    ) -> TensorDict:
        """See `rrf.envs.control_env.ResetsSome`. Nothing is random here, so any seed will do."""
        begins = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        begins[list(env_ids)] = True
        self.position = torch.where(begins, 0.0, self.position)
        self.episode_length_buf = torch.where(begins, 0, self.episode_length_buf)
        return self.get_observations()

    def get_observations(self) -> TensorDict:
        observed = self.position.unsqueeze(-1).clone()
        return TensorDict({"policy": observed}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor):
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

    def state(self) -> EnvState:
        return EnvState({"position": self.position, "length": self.episode_length_buf}, {})

    def load_state(self, state: EnvState) -> None:
        self.position = state.tensors["position"].clone()
        self.episode_length_buf = state.tensors["length"].clone()

    def close(self) -> None:
        pass
