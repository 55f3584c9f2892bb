"""Updates of every on-policy algorithm from a fixed seed: a change of the losses shows here.

A numerical change is written down with
`python -m tests.algorithms.on_policy.test_golden_traces`, in the same commit and with the reason.
"""

import json

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
from tests.algorithms.on_policy import linear
from tests.closeness import ULP
from tests.envs.toy import CorridorCfg
from tests.golden_files import GOLDEN

TRACES = GOLDEN / "rl_traces.json"
GIVEN = json.loads(TRACES.read_text())
SETTINGS, NUM_ENVS = GIVEN["settings"], GIVEN["settings"]["num_envs"]
MLP = plain_mlp(SETTINGS["hidden"], SETTINGS["activation"])
CRITIC = VNetworkCfg(backbone_cfg=MLP)
PLAIN = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(backbone_cfg=MLP), critic_cfg=CRITIC)
LIPSNET = ActorCriticPackCfg(actor_cfg=LipsNetActorCfg(backbone_cfg=MLP), critic_cfg=CRITIC)
POPULATION = PopulationPackCfg(
    actor_cfg=PLAIN.actor_cfg, critic_cfg=CRITIC, **SETTINGS["population"]
)
LEARNING = SETTINGS["learning"]
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
        EPOCfg(**LEARNING, evolution_interval=SETTINGS["evolution_interval"]),
        POPULATION.replace(learn_latents=False),
    ),
}


def trace(name) -> dict[str, list[float]]:
    """Losses and divergence of every update."""
    cfg, pack = CASES[name]
    seeds = SETTINGS["seeds"]
    torch.manual_seed(seeds["networks"])
    env = CorridorCfg(num_envs=NUM_ENVS, length=SETTINGS["length"]).build(seed=seeds["env"])
    policy, num_steps = pack.build(env.interface), SETTINGS["num_steps"]
    learner = linear.algorithm(cfg, policy, NUM_ENVS, num_steps, seed=seeds["learning"])
    rows: dict[str, list[float]] = {}
    for _ in range(SETTINGS["num_updates"]):
        metrics = learner.update(linear.fill(learner, env)[-1])
        for key, value in metrics.items():
            if key.startswith("loss/") or key == "policy/kl":
                rows.setdefault(key, []).append(value)
    return rows


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_written_down(name):
    expected = GIVEN["losses"][name]
    found = trace(name)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        # Normalised advantages have the size 1, and the surrogate is what is left of their sum;
        # updates multiply what one processor rounds otherwise than another.
        assert found[key] == pytest.approx(values, rel=1e-4, abs=32 * ULP), key


if __name__ == "__main__":
    losses = {name: trace(name) for name in CASES}
    TRACES.write_text(json.dumps({"settings": SETTINGS, "losses": losses}, indent=1) + "\n")
