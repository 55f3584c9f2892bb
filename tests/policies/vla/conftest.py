"""Heads and policies of the smallest size that shows something, and what tests do with them."""

import numpy as np
import pytest
import torch

from rrf.policies import FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.policies.vla.action_heads import HeadSample
from tests.runners.conftest import _one_thread  # noqa: F401

FEATURES, CHUNK, ACTION = 6, 2, 3
GAUSSIAN = GaussianHeadCfg(temperature=1.7)
FLOWS = [
    FlowMatchingHeadCfg(
        noise_method=method,
        stochastic_steps=steps,
        time_convention=convention,
        hidden_features=[32, 32],
        std_hidden_features=[16],
    )
    for method in ("flow_sde", "flow_cps", "reinflow")
    for steps in ("one", "all")
    for convention in ("openpi", "gr00t")
]
HEADS = [GAUSSIAN, *FLOWS]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """lerobot's policies, for the tests of a module; imported only by those that ask for them."""
    from tests.policies.vla.lerobot.lerobot_cases import Zoo

    return Zoo(tmp_path_factory.mktemp("zoo"))


def name(cfg) -> str:
    if isinstance(cfg, FlowMatchingHeadCfg):
        return f"{cfg.noise_method}-{cfg.stochastic_steps}-{cfg.time_convention}"
    return "gaussian" if isinstance(cfg, GaussianHeadCfg) else "tokens"


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_head(cfg, seed: int = 0):
    torch.manual_seed(seed)
    head = cfg.build(FEATURES, CHUNK, ACTION)
    torch.nn.init.normal_(head.output.weight, std=0.5)  # far from the initial zero
    return head


def features(batch: int) -> torch.Tensor:
    return torch.randn(batch, FEATURES, generator=generator(9))


@torch.no_grad()
def draw(head, features_bf: torch.Tensor, seed: int = 0, greedy: bool = False) -> HeadSample:
    return head.sample(features_bf, None if greedy else generator(seed), greedy)


def train(head, inputs, target, num_steps: int, lr: float) -> tuple[float, float]:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(head.parameters(), lr=lr)
    is_pad = torch.zeros(target.shape[:2], dtype=torch.bool)
    losses = []
    for _ in range(num_steps):
        loss, _ = head.loss(inputs, target, is_pad)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses[:20])), float(np.mean(losses[-20:]))


def train_policy(
    policy, batch, num_steps: int, lr: float, noise_seed: int | None = 1
) -> tuple[list[float], dict[str, float]]:
    """Fit a policy to one batch. With a seed, the noise is the same in every step.

    Returns:
        The loss before each step, and the metrics before the last one.
    """
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    losses, metrics = [], {}
    for _ in range(num_steps):
        if noise_seed is not None:
            torch.manual_seed(noise_seed)
        loss, metrics = policy.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, metrics
