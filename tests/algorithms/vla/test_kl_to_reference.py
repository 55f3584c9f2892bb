"""Fine-tuning that stays close to the policy it started from."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rrf.algorithms.vla.behavior_cloning import BehaviorCloning
from rrf.algorithms.vla.configs import BehaviorCloningCfg
from rrf.cli import app
from rrf.data.schema import ACTION, STATE
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.networks.vlm.build import has_adapters
from rrf.networks.vlm.configs import LoRACfg
from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.policies.vla.configs import RegressionHeadCfg
from rrf.policies.vla.heads.diffusion_configs import DiffusionHeadCfg
from rrf.policies.vla.heads.oft_configs import OFTDiffusionHeadCfg, OFTRegressionHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.workspace import HOME_VARIABLE
from tests.networks.vlm.qwen.tiny_qwen import tiny2, write_tokenizer
from tests.policies.vla.test_vlm import NORM_STATS, observation, policy_cfg
from tests.policies.vla.tiny_models import BACKBONES
from tests.runners.supervised.conftest import tiny_run_cfg

HEADS = [GaussianHeadCfg(), DiscreteTokenHeadCfg(), FlowMatchingHeadCfg()]


def moved(policy):
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_the_divergence_is_zero_at_the_start_and_has_a_gradient_away_from_it(head):
    torch.manual_seed(0)
    policy = policy_cfg(head=head).build(NORM_STATS)
    cloning = BehaviorCloning(BehaviorCloningCfg(kl_coef=1.0), policy, NORM_STATS)
    assert cloning.divergence(observation()).abs() < 1e-5
    moved(policy)
    values = torch.stack([cloning.divergence(observation(64)) for _ in range(8)])
    assert values.mean() > 0
    values.mean().backward()
    assert max(p.grad.abs().max() for p in policy.parameters() if p.grad is not None) > 1e-5


def test_the_divergence_of_normal_distributions_is_the_known_one():
    """KL(N(m1, s) || N(m2, s)) = (m1 - m2)^2 / (2 s^2)."""
    torch.manual_seed(0)
    policy = policy_cfg(head=GaussianHeadCfg(initial_std=0.5)).build(NORM_STATS)
    cloning = BehaviorCloning(BehaviorCloningCfg(kl_coef=1.0), policy, NORM_STATS)
    with torch.no_grad():
        policy.head.output.bias.add_(0.3)
    drawn = torch.stack([cloning.divergence(observation(512)) for _ in range(8)]).mean()
    assert drawn.item() == pytest.approx(0.3**2 / (2 * 0.5**2), rel=0.05)


def test_with_adapters_the_base_is_the_reference(tmp_path):
    torch.manual_seed(0)
    backbone = tiny2(write_tokenizer(tmp_path), tuning=LoRACfg(rank=2))
    cfg = VLMPolicyCfg(
        cameras=["front"],
        image_size=(56, 84),
        state_dim=4,
        action_dim=3,
        backbone=backbone,
        head=GaussianHeadCfg(),
    )
    policy = cfg.build({STATE: NORM_STATS[STATE], ACTION: NORM_STATS[ACTION]})
    cloning = BehaviorCloning(BehaviorCloningCfg(kl_coef=1.0), policy, NORM_STATS)
    assert cloning._reference is None
    assert has_adapters(policy)
    seen = observation()
    seen.images = {"front": np.zeros((2, 56, 84, 3), np.uint8)}
    assert cloning.divergence(seen).abs() < 1e-5
    moved(policy.backbone)
    cloning.divergence(seen).backward()
    gradients = [p.grad for n, p in policy.backbone.named_parameters() if "lora_" in n]
    assert max(g.abs().max() for g in gradients) > 1e-6


def test_a_strong_penalty_keeps_the_policy_close(dataset, tmp_path):
    base = tiny_run_cfg(dataset).override({"policy.head": GaussianHeadCfg().to_dict()})
    base.build(tmp_path / "parent").run()
    moved_by = {}
    for coef in (0.0, 30.0):
        cfg = base.replace(init_from=str(tmp_path / "parent"), instructions=None)
        cfg = cfg.override({"algorithm.kl_coef": coef, "optimizer.lr": 1e-2})
        runner = cfg.build(tmp_path / f"kl-{coef:g}")
        before = checkpoint.load_policy(tmp_path / "parent/global_step_20")
        runner.run()
        batch = runner.split.training.batch(np.arange(16)).observation
        mine, theirs = (p.sample(batch, greedy=True).actions for p in (runner.deployed, before))
        moved_by[coef] = float(np.abs(mine - theirs).mean())
    assert moved_by[30.0] < 0.5 * moved_by[0.0]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("RegressionHeadCfg", "kl_coef is 0.1, but a regression head has no density; use a token"),
        ("GaussianHeadCfg", "there is no policy to stay close to; give it as init_from"),
    ],
)
def test_a_penalty_without_a_density_or_a_parent_is_refused_before_anything_is_made(
    head, message, dataset, tmp_path, monkeypatch
):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    words = ["train", "compact-vla-pretrain", f"dataset={dataset}", "algorithm.kl_coef=0.1"]
    words += [f"policy.head={{type: 'rrf.policies.vla.configs:{head}'}}", "trackers=[]"]
    run = CliRunner()
    with pytest.raises(ValueError, match=message):
        run.invoke(app, [*words, "--run-dir", str(tmp_path / "run")], catch_exceptions=False)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / ".rrf").exists()


@pytest.mark.parametrize(
    ("head", "has_density"),
    [
        (OFTDiffusionHeadCfg(), False),
        (OFTRegressionHeadCfg(), True),
        (DiffusionHeadCfg(), False),
        (DiffusionHeadCfg(eta=0.5), True),
        (RegressionHeadCfg(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_policy_gradients_are_refused_for_heads_without_a_density(head, has_density):
    policy = VLMPolicyCfg(backbone=BACKBONES["prismatic"], head=head)
    assert (policy.lacks_density is None) == has_density
    if not has_density:
        with pytest.raises(ValueError, match=r"cannot train the policy: .* density"):
            VLARLRunnerCfg(policy=policy, env=MetaWorldCfg())
    VLARLRunnerCfg(policy=policy, env=MetaWorldCfg(), only_eval=not has_density)
