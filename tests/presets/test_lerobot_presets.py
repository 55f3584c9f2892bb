"""The presets of lerobot's policies: sizes, recipes, and that they load no torch."""

import subprocess
import sys

import pytest
import torch

from rrf.data.schema import ACTION, STATE
from rrf.presets import resolve
from tests.policies.vla.test_vlm import stats


@pytest.mark.parametrize(
    ("preset", "millions"), [("lerobot-act-laptop", 11.9), ("lerobot-diffusion-laptop", 12.3)]
)
def test_a_laptop_policy_has_the_stated_size(preset, millions):
    cfg = resolve(preset).policy
    policy = cfg.build({STATE: stats(4), ACTION: stats(4)})
    assert sum(p.numel() for p in policy.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(("preset", "millions"), [("lerobot-act", 52), ("lerobot-diffusion", 261)])
def test_a_policy_of_real_size_has_the_stated_size(preset, millions):
    sizes = {"cameras": ["top"], "image_size": (96, 96), "state_dim": 14, "action_dim": 14}
    cfg = resolve(preset).policy.replace(**sizes)
    with torch.device("meta"):
        from rrf.policies.vla.lerobot.build import build_config, build_policy

        policy = build_policy(build_config(cfg))
    assert sum(p.numel() for p in policy.parameters()) / 1e6 == pytest.approx(millions, abs=1)


def test_lerobots_own_recipe_is_the_one_of_the_presets():
    from rrf.policies.vla.lerobot.build import config_class

    for kind in ("act", "diffusion", "smolvla"):
        cfg = resolve(f"lerobot-{kind}")
        own = config_class(kind)(device="cpu")
        theirs = own.get_optimizer_preset()
        ours = cfg.optimizer
        found = (ours.lr, tuple(ours.betas), ours.eps, ours.weight_decay, cfg.max_grad_norm)
        expected = (theirs.lr, tuple(theirs.betas), theirs.eps, theirs.weight_decay)
        assert found == (*expected, theirs.grad_clip_norm)
        expected = own.horizon if kind == "diffusion" else own.chunk_size
        assert cfg.policy.chunk_length == expected


def test_the_presets_load_no_torch():
    code = (
        "import sys, rrf.presets.lerobot; "
        "rrf.presets.lerobot.lerobot_act(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
