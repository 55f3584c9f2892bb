"""OpenVLA-OFT with tokens learns a small task from images: first by imitation, then by GRPO."""

import pytest
import torch

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg, GRPOCfg
from rrf.config import trust
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.prismatic.configs import LlamaCfg, PrismaticCfg, TowerCfg
from rrf.orchestra import inline
from rrf.policies.vla.heads.oft_configs import OFTTokenHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.configs import AdamWCfg
from tests.orchestra.toy import INSTRUCTIONS, presets
from tests.presets.laptop_pairs import InThisProcess
from tests.toy_simulator.demonstrations import demonstrate

TOWER = TowerCfg(width=32, depth=3, num_heads=2, mlp_features=64, patch_size=4)
WORDS = sorted({word for text in INSTRUCTIONS.values() for word in text.split()})


def policy() -> VLMPolicyCfg:
    return VLMPolicyCfg(
        cameras=["top"],
        image_size=(16, 16),
        state_dim=2,
        action_dim=2,
        chunk_length=2,
        backbone=PrismaticCfg(
            image=ImageRuleCfg(size=(16, 16), fit="stretch"),
            featurizer=TOWER.replace(class_token=True, num_registers=2, layer_scale=1.0),
            fused_featurizer=TOWER.replace(attention_pool=True),
            language=LlamaCfg(
                vocabulary_size=64, width=48, mlp_features=96, depth=2, num_heads=4,
                num_key_value_heads=4, max_tokens=64,
            ),
            tokenizer=TokenizerCfg(words=WORDS),
            prompt_suffix_ids=[],
            slot_suffix_ids=[],
            random_weights="keep_variance",
        ),
        head=OFTTokenHeadCfg(
            num_bins=32, num_reserved_tokens=0, uses_state=True, temperature=1.6
        ),
        state_normalization="min_max",
    )  # fmt: skip


@pytest.mark.slow
def test_imitation_learns_it_and_grpo_improves_it(tmp_path, monkeypatch):
    monkeypatch.setattr(inline, "LocalProcesses", InThisProcess)
    monkeypatch.chdir(tmp_path)
    trust("tests")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    demonstrate(tmp_path / "toy", episodes_per_task=150)
    cloning = presets.sft().replace(
        dataset=str(tmp_path / "toy"),
        policy=policy(),
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=0, state_noise=0.02)),
        optimizer=AdamWCfg(lr=1e-3, weight_decay=0.01),
        max_steps=800,
        save_interval=800,
    )
    imitated = cloning.build(tmp_path / "sft").run()["checkpoint"]
    cfg = presets.grpo().replace(
        init_from=str(imitated),
        policy=policy(),
        num_workers=1,
        algorithm=GRPOCfg(),
        optimizer=AdamWCfg(lr=6e-4, betas=(0.9, 0.95), weight_decay=0.0),
        max_rounds=32,
        validation_interval=8,
        validation_episodes=50,
        update_threads=1,
    )
    runner = cfg.build(tmp_path / "grpo")
    runner.run()
    torch.set_num_threads(threads)
    solved = [row["success"] for row in runner.validations]
    assert solved[0] > 0.4
    assert max(solved[2:]) > solved[0] + 0.1, solved
