"""Ten updates of every on-policy algorithm from a fixed seed: a change of the losses shows here.

A numerical change is written down with `python -m tests.control.test_golden_traces`, in the same
commit and with the reason.
"""

import json
from pathlib import Path

import pytest
import torch

from rrf.algorithms import (
    CAPSCfg,
    EPOCfg,
    L2C2Cfg,
    LCPCfg,
    LipsCfg,
    LipsNetPPOCfg,
    PPOCfg,
    RNDCfg,
    SAPGCfg,
)
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorCriticPackCfg,
    LipsNetActorCfg,
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from tests.control import linear
from tests.control.toy import CorridorCfg

GOLDEN = Path(__file__).parents[1] / "golden/rl_traces.json"
NUM_UPDATES, NUM_ENVS, NUM_STEPS = 10, 12, 6
MLP = plain_mlp([16, 16], "Tanh")
CRITIC = VNetworkCfg(backbone_cfg=MLP)
PLAIN = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(backbone_cfg=MLP), critic_cfg=CRITIC)
LIPSNET = ActorCriticPackCfg(actor_cfg=LipsNetActorCfg(backbone_cfg=MLP), critic_cfg=CRITIC)
POPULATION = PopulationPackCfg(
    actor_cfg=PLAIN.actor_cfg, critic_cfg=CRITIC, num_members=4, latent_dim=4
)
LEARNING = {"num_learning_epochs": 2, "num_mini_batches": 3}
CASES = {
    "PPO": (PPOCfg(**LEARNING), PLAIN),
    "PPO with RND": (PPOCfg(**LEARNING, rnd_cfg=RNDCfg(network_cfg=MLP)), PLAIN),
    "CAPS": (CAPSCfg(**LEARNING), PLAIN),
    "L2C2": (L2C2Cfg(**LEARNING), PLAIN),
    "Lips": (LipsCfg(**LEARNING), PLAIN),
    "LCP": (LCPCfg(**LEARNING), PLAIN),
    "LipsNet": (LipsNetPPOCfg(**LEARNING), LIPSNET),
    "SAPG": (SAPGCfg(**LEARNING), POPULATION),
    "EPO": (
        EPOCfg(**LEARNING, evolution_interval=3),
        POPULATION.replace(learn_latents=False),
    ),
}


def trace(name) -> dict[str, list[float]]:
    """Losses and divergence of every update."""
    cfg, pack = CASES[name]
    torch.manual_seed(0)
    env = CorridorCfg(num_envs=NUM_ENVS, length=8).build(seed=1)
    learner = linear.algorithm(cfg, pack.build(env.interface), NUM_ENVS, NUM_STEPS, seed=2)
    rows: dict[str, list[float]] = {}
    for _ in range(NUM_UPDATES):
        metrics = learner.update(linear.fill(learner, env)[-1])
        for key, value in metrics.items():
            if key.startswith("loss/") or key == "policy/kl":
                rows.setdefault(key, []).append(value)
    return rows


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_written_down(name):
    expected = json.loads(GOLDEN.read_text())[name]
    found = trace(name)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=1e-4, abs=1e-6), key


if __name__ == "__main__":
    traces = {name: trace(name) for name in CASES}
    GOLDEN.write_text(json.dumps(traces, indent=1) + "\n")
