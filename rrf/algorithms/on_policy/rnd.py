"""Random network distillation (RND), arXiv:1810.12894: an extra reward for states that are new.

A predictor learns the outputs of a fixed random network. Its error is large in states that the
policy has rarely seen. The squared error, divided by the running standard deviation of its
discounted sums, is added to the reward. RND normalises observations with its own statistics and
clips them to [-5, 5].

Different from the paper, as in rsl_rl: one critic learns the sum of both rewards, and the weight of
the intrinsic reward may change over time.

Legend: N environments, B samples, O observation width.
"""

import torch
from tensordict import TensorDict
from torch import nn

from rrf.algorithms import distributed
from rrf.algorithms.on_policy.configs import RNDCfg
from rrf.algorithms.on_policy.extension import Extension
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.networks.configs import without_dropout
from rrf.policies.control.normalizer import EmpiricalNormalizer, RewardScaler
from rrf.policies.control.state_network import groups_of
from rrf.storage.rollout import ControlStep

_CLIP = 5.0


class RND(Extension):
    """Adds to each reward the intrinsic reward of the state that the step led to."""

    def __init__(self, cfg: RNDCfg, algorithm: PPO):
        self.cfg, self.generator = cfg, algorithm.generator
        count = algorithm.rollout.num_envs * algorithm.rollout.num_steps
        if cfg.num_mini_batches > count:
            raise ValueError(
                f"algorithm.rnd_cfg.num_mini_batches is {cfg.num_mini_batches}, allowed: up to "
                f"{count}, the samples of a rollout"
            )
        dims = algorithm.policy.interface.observation_dims
        default = [group for group in algorithm.policy.actor.groups if group in dims]
        self.groups = groups_of(cfg.observation_groups or default, default, dims, "RND")
        width = sum(dims[group] for group in self.groups)
        network_cfg = without_dropout(cfg.network_cfg)
        self.target = network_cfg.build(width, cfg.num_features).requires_grad_(False)
        self.predictor = network_cfg.build(width, cfg.num_features)
        self.normalizer = EmpiricalNormalizer(width)
        # Not shared among processes: if one stops at a NaN, the others must not wait for it.
        self.scaler = RewardScaler(algorithm.rollout.num_envs, algorithm.cfg.gamma, is_shared=False)
        parts = [self.target, self.predictor, self.normalizer, self.scaler]
        self.network = nn.ModuleList(parts).to(algorithm.device)
        self.optimizer = torch.optim.Adam(
            self.predictor.parameters(), lr=cfg.learning_rate, fused=True
        )
        self.num_updates = torch.zeros((), dtype=torch.int64)
        self.intrinsic_rewards = torch.zeros(algorithm.rollout.num_envs, device=algorithm.device)
        self._seen: list[torch.Tensor] = []

    @property
    def weight(self) -> float:
        """The current weight of the intrinsic reward."""
        cfg = self.cfg
        if cfg.final_weight is None:
            return cfg.weight
        progress = min(1.0, self.num_updates.item() / cfg.num_weight_iterations)
        return cfg.weight + progress * (cfg.final_weight - cfg.weight)

    @torch.no_grad()
    def rewards(self, step: ControlStep, rewards: torch.Tensor) -> torch.Tensor:
        x = self._read(step.next_observations)
        if step.final_observations is not None:
            x = x.clone()
            x[step.dones] = self._read(step.final_observations)
        self._seen.append(x)
        # As in the paper, the return of intrinsic rewards does not end with an episode.
        never = torch.zeros_like(step.dones).unsqueeze(0)
        scaled = self.scaler(self.errors(x).unsqueeze(0), never)
        self.intrinsic_rewards = self.weight * scaled.squeeze(0)
        return rewards + self.intrinsic_rewards

    def errors(self, x_bo: torch.Tensor) -> torch.Tensor:
        """The predictor's mean squared error in each state, [B]."""
        x_bo = self.normalizer(x_bo).clamp(-_CLIP, _CLIP)
        target = self.target(x_bo)
        return (self.predictor(x_bo) - target).square().mean(-1)

    def learn(self) -> dict[str, float]:
        x_so = torch.cat(self._seen)
        self._seen = []
        self.normalizer.update(x_so)
        order = torch.randperm(len(x_so), generator=self.generator, device=x_so.device)
        losses = []
        for rows in order.tensor_split(self.cfg.num_mini_batches):
            loss = self.errors(x_so[rows]).mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            distributed.average_gradients(self.predictor)
            self.optimizer.step()
            losses.append(loss.detach())
        numbers = {"loss/rnd": torch.stack(losses).mean().item(), "rnd/weight": self.weight}
        self.num_updates += 1
        return numbers

    def state(self) -> dict[str, torch.Tensor]:
        tensors = {f"network/{key}": value for key, value in self.network.state_dict().items()}
        packed = optimizer_tensors(self.optimizer, self.predictor)
        tensors |= {f"optimizer/{key}": value for key, value in packed.items()}
        return tensors | {"num_updates": self.num_updates.clone()}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        self.network.load_state_dict(beneath(tensors, "network/"))
        restore_optimizer(self.optimizer, self.predictor, beneath(tensors, "optimizer/"))
        self.num_updates.copy_(tensors["num_updates"])
        self._seen = []

    def _read(self, observations: TensorDict) -> torch.Tensor:
        return torch.cat([observations[group] for group in self.groups], -1)
