"""Toys for students: a ridge to balance on, teachers by hand, short runs."""

import torch
from tensordict import TensorDict

from rrf.algorithms import DAggerCfg, DistillationCfg
from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorCriticPackCfg,
    BlindActorCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    StudentCfg,
    VNetworkCfg,
)
from rrf.runners import DistillationRunnerCfg, OnPolicyRunnerCfg
from tests.envs.toy import CorridorCfg, OnALine

LINEAR = plain_mlp([], "ELU")
NUM_BINS = 21  # each 0.1 wide; the middle one is -0.05 to 0.05


@configclass(builds="tests.algorithms.distillation.ridge:Ridge")
class RidgeCfg(ControlEnvCfg):
    """Stay within 1 of the top of a ridge: x' = 1.2 x + 0.5 a + noise of up to 0.05."""

    task: str = "Ridge"
    num_envs: int = 8
    length: int = 40
    """Steps until the time limit."""


class Ridge(OnALine):
    """Group "policy" tells the bin of the position, group "critic" the position itself.

    The action -2.4 x brings the position back to the middle bin in one step, so whoever acts
    like this never sees another bin.
    """

    def __init__(self, cfg: RidgeCfg, seed: int = 0, device: str = "cpu"):
        self.cfg, self.num_envs, self.num_actions, self.device = cfg, cfg.num_envs, 1, device
        self.max_episode_length = cfg.length
        self.interface = Interface({"policy": NUM_BINS, "critic": 1}, 1, task=cfg.task)
        self.generator = torch.Generator().manual_seed(seed)
        self.reset()

    def noise(self) -> torch.Tensor:
        return 0.1 * torch.rand(self.num_envs, generator=self.generator) - 0.05

    def reset(self):
        self.position = self.noise()
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64)
        return self.get_observations(), {}

    def get_observations(self) -> TensorDict:
        bins = (self.position * 10).round().long().clamp(-10, 10) + 10
        groups = {
            "policy": torch.nn.functional.one_hot(bins, NUM_BINS).float(),
            "critic": self.position.unsqueeze(-1).clone(),
        }
        return TensorDict(groups, [self.num_envs])

    def step(self, actions):
        self.position = 1.2 * self.position + 0.5 * actions[:, 0].clamp(-1, 1) + self.noise()
        self.episode_length_buf += 1
        fallen = self.position.abs() > 1
        time_outs = (self.episode_length_buf >= self.cfg.length) & ~fallen
        dones = fallen | time_outs
        final = self.get_observations()[dones] if dones.any() else None
        self.position = torch.where(dones, self.noise(), self.position)
        self.episode_length_buf[dones] = 0
        rewards = torch.ones(self.num_envs)
        extras = {"time_outs": time_outs, "final_obs": final, "log": {}}
        return self.get_observations(), rewards, dones, extras


def linear_teacher(path, env: ControlEnvCfg, weights: list[float], bias: float, **actor) -> str:
    """A checkpoint of PPO whose mean action is linear in what the group "critic" tells."""
    both = {"backbone_cfg": LINEAR, "obs_normalization": False, "observation_groups": ["critic"]}
    cfg = OnPolicyRunnerCfg(
        env=env,
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(**(both | actor)), critic_cfg=VNetworkCfg(**both)
        ),
    )
    runner = cfg.build(path)
    if runner.policy.actor.cfg.backbone_cfg == LINEAR and "memory" not in actor:
        with torch.no_grad():
            layer = runner.policy.actor.backbone.layers[0]
            layer.weight.copy_(torch.tensor([weights]))
            layer.bias.fill_(bias)
    return str(runner.save())


def corridor_teacher(path, **actor) -> str:
    """Walks to 1 and stays there: 2 - 2 x, whatever the time."""
    return linear_teacher(path, CorridorCfg(num_envs=4), [-2.0, 0.0], 2.0, **actor)


def student(memory: int | None = 8, **actor) -> StudentCfg:
    """A small student."""
    layer = MemoryCfg(hidden_size=memory) if memory else None
    return StudentCfg(
        actor_cfg=BlindActorCfg(backbone_cfg=plain_mlp([16], "ELU"), memory=layer, **actor)
    )


ALGORITHMS = {
    "distillation": DistillationCfg(gradient_length=5, num_learning_epochs=2),
    "dagger": DAggerCfg(
        gradient_length=5, num_learning_epochs=2, dataset_size=80, sequences_per_batch=3
    ),
}


def run_cfg(name: str, teacher: str, **changes) -> DistillationRunnerCfg:
    """A short run: 4 environments, 4 iterations of 40 transitions."""
    defaults = {
        "teacher": teacher,
        "env": CorridorCfg(num_envs=4, hides_position=True),
        "policy": student(),
        "algorithm": ALGORITHMS[name],
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
    }
    return DistillationRunnerCfg(**(defaults | changes))
