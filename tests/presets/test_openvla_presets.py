"""The presets of OpenVLA: real sizes on the meta device, laptop sizes in full."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.vlm.build import build_backbone
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.presets import resolve
from rrf.presets.openvla import PROMPT
from tests.policies.vla.test_vlm import stats


@pytest.mark.parametrize("preset", ["openvla-laptop", "openvla-oft-laptop"])
def test_a_laptop_policy_is_small_and_acts(preset):
    cfg = resolve(preset).policy
    policy = cfg.build({STATE: stats(4), ACTION: stats(4)})
    assert sum(p.numel() for p in policy.parameters()) < 10e6
    images = {"corner2": np.zeros((2, 64, 64, 3), np.uint8)}
    seen = Observation(images, np.zeros((2, 4), np.float32), ["open a drawer", "close a door"])
    assert policy.sample(seen).actions.shape == (2, 2, 4)
    batch = Batch(seen, np.zeros((2, 2, 4), np.float32), np.zeros((2, 2), bool))
    loss, _ = policy.loss(batch)
    loss.backward()
    read = {name for name, p in policy.named_parameters() if p.grad is not None}
    trained = {name for name, p in policy.named_parameters() if p.requires_grad}
    # The head without slots reads the output layer; the std is trained by policy gradients alone.
    assert trained - read <= {"backbone.language_model.lm_head.weight", "head.log_std_ha"}


@pytest.mark.parametrize("preset", ["openvla-sft", "openvla-oft-sft"])
def test_fine_tuning_trains_adapters_in_all_linear_layers(preset):
    cfg = resolve(preset).policy
    assert cfg.backbone.weights == cfg.backbone.tokenizer.files == "openvla-7b"
    bare = cfg.backbone.replace(weights=None, tokenizer=TokenizerCfg())
    with torch.device("meta"):
        backbone = build_backbone(bare)
    trained = [(name, p) for name, p in backbone.named_parameters() if p.requires_grad]
    assert all(".lora_" in name for name, _ in trained)
    # Inputs plus outputs: 32 layers of Llama with 78,080, its output layer 36,160, the projector
    # 31,872, 24 blocks with 16,384, 27 with 17,824, the pool 18,976, two patch embeddings 3,352;
    # together 3,463,384, times the rank of 32.
    assert sum(p.numel() for _, p in trained) == 110_828_288
    assert cfg.prompt == PROMPT


def test_the_presets_load_no_torch():
    code = "import sys, rrf.presets.openvla; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
