"""The published families are reinforced by the same loop: rollout and training agree on every
probability before the first update, and updates follow the rewards."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Observation
from rrf.lineage import DatasetLineage, Lineage
from rrf.networks.vlm.configs import BackboneCfg, TokenizerCfg
from rrf.networks.vlm.prismatic.configs import PrismaticCfg
from rrf.orchestra.actor_role import VALUE_HEAD
from rrf.policies.vla.configs import ActionHeadCfg, ValueHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.preflight import check_log_probs
from tests.policies.vla.tiny_models import BACKBONES, heads
from tests.runners.vla_rl.conftest import build, runner_cfg
from tests.runners.vla_rl.test_job_sources import states
from tests.runners.vla_rl.test_vla_rl_runner import imitate_timidly
from tests.runners.vla_rl.toy import STATS, ToyBackend, make_policy

_FLOWS = {
    "pi0": "paligemma",
    "pi05": "paligemma",
    "groot-n15": "eagle",
    "groot-n17": "qwen3-vl",
}
_OTHERS = {"action-tokens": "prismatic", "oft": "prismatic", "oft-tokens": "prismatic"}
_NUMBERS = TokenizerCfg(words=["go", *map(str, range(256))])
_METHODS = ("flow_sde", "flow_cps", "reinflow")


def head_of(family: str, method: str | None) -> ActionHeadCfg:
    head = heads("")[family]
    return head if method is None else head.replace(noise_method=method, stochastic_steps="all")


def policy_cfg(family: str, method: str | None, **changes) -> VLMPolicyCfg:
    """A tiny policy for the toy task, whose state is the goal. Heads that do not see the state read
    it in the prompt.
    """
    backbone = BACKBONES[(_FLOWS | _OTHERS)[family]]
    reads_state = family in ("pi05", "action-tokens")
    if reads_state:
        backbone = backbone.replace(tokenizer=_NUMBERS, **_with_vocabulary(backbone, 600))
    return VLMPolicyCfg(
        cameras=["front"],
        image_size=(8, 8),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        backbone=backbone,
        head=head_of(family, method),
        state_normalization="mean_std",
        action_normalization="min_max",
        prompt="{instruction} {state}" if reads_state else "{instruction}",
        **changes,
    )


def _with_vocabulary(backbone: BackboneCfg, size: int) -> dict:
    if isinstance(backbone, PrismaticCfg):  # action tokens are its last words
        return {"language": backbone.language.replace(vocabulary_size=size)}
    return {"vocabulary_size": size}


CASES = [(family, method) for family in _FLOWS for method in _METHODS]
CASES += [(family, None) for family in _OTHERS]


@pytest.mark.parametrize(("family", "method"), CASES)
@pytest.mark.parametrize("critic", [None, ValueHeadCfg()], ids=["grpo", "ppo"])
def test_rollout_and_training_agree_before_the_first_update(family, method, critic):
    cfg = policy_cfg(family, method, value_head=critic)
    player, trained = make_policy(cfg), make_policy(cfg)
    source = JobList([state for state, _ in zip(states(), range(4), strict=False)])
    ToyBackend(player).play(source, (0,))
    found = check_log_probs(player, trained, source.episodes)
    assert found["preflight/max_ratio_error"] <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method"),
    [("oft", None), ("pi0", "reinflow"), ("pi05", "flow_sde"), ("groot-n17", "flow_sde")],
)
def test_a_family_goes_past_what_it_imitated(tmp_path, family, method):
    cfg = _runner_cfg(family, method, max_rounds=40)
    runner = build(cfg, tmp_path / "run", lambda policy: imitate_timidly(policy, 0.33))
    runner.run()
    before, after = runner.validations[0]["success"], runner.validations[-1]["success"]
    assert after > before + 0.1


@pytest.mark.slow
def test_action_tokens_learn_what_they_seldom_did(tmp_path):
    runner = build(_runner_cfg("action-tokens", None, max_rounds=30, lr=3e-3), tmp_path / "run")
    runner.run()
    before, after = runner.validations[0]["success"], runner.validations[-1]["success"]
    assert after > before + 0.25


def _runner_cfg(family: str, method: str | None, max_rounds: int, lr: float = 1e-3):
    cfg = runner_cfg(max_rounds=max_rounds, validation_interval=max_rounds, validation_episodes=40)
    optimizer = cfg.optimizer.replace(lr=lr)
    return cfg.replace(policy=policy_cfg(family, method), optimizer=optimizer)


@pytest.mark.parametrize("family", ["oft", "pi05", "groot-n17"])
def test_a_policy_that_was_imitated_gets_a_critic_that_the_value_loss_trains(family, tmp_path):
    imitated, cfg = policy_cfg(family, None), policy_cfg(family, None, value_head=ValueHeadCfg())
    parent = make_policy(imitated)
    saved = checkpoint.save(
        tmp_path, 1, SupervisedRunnerCfg(policy=imitated), parent.state_dict(), STATS,
        checkpoint.TrainerState({}, {}), Lineage((DatasetLineage("toy"),)),
    )  # fmt: skip
    policy = make_policy(cfg)
    checkpoint.load_weights(policy, saved, may_lack=(VALUE_HEAD,))
    own = parent.state_dict()
    assert all(torch.equal(policy.state_dict()[name], own[name]) for name in own)

    seen = Observation(
        {"front": np.zeros((3, 8, 8, 3), np.uint8)}, np.eye(3, 2, dtype=np.float32), ["go"] * 3
    )
    replay = policy.sample(seen).replay
    value = policy.evaluate(seen, replay).value
    assert value.shape == (3, 1)
    value.sum().backward()
    trained = {name for name, p in policy.named_parameters() if p.grad is not None}
    critic = {name for name, _ in policy.named_parameters() if name.startswith(VALUE_HEAD)}
    assert trained == critic
    assert any(name.startswith("value_head.trunk") for name in critic)
