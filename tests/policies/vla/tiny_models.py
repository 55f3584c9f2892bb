"""Every backbone and every head, as small as they can be, for the robot of `test_vlm`."""

import numpy as np

from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.eagle.configs import EagleCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.networks.vlm.paligemma.configs import GemmaCfg, PaliGemmaCfg, SiglipCfg
from rrf.networks.vlm.prismatic.configs import LlamaCfg, PrismaticCfg, TowerCfg
from rrf.networks.vlm.qwen.configs import Qwen2VLCfg, Qwen3VLCfg
from rrf.policies.vla.configs import (
    ActionHeadCfg,
    DiscreteTokenHeadCfg,
    FlowMatchingHeadCfg,
    GaussianHeadCfg,
    RegressionHeadCfg,
)
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.heads.diffusion_configs import DiffusionHeadCfg
from rrf.policies.vla.heads.dit_configs import DiTHeadCfg
from rrf.policies.vla.heads.fast_configs import FastHeadCfg
from rrf.policies.vla.heads.fast_tokenizer import FILE, FastTokenizer
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg, n17_head
from rrf.policies.vla.heads.oft_configs import (
    OFTDiffusionHeadCfg,
    OFTRegressionHeadCfg,
    OFTTokenHeadCfg,
)
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg

_WORDS = TokenizerCfg(words=["close", "door", "open", "the"])
_IMAGE = ImageRuleCfg(size=(16, 16))
_TOWER = TowerCfg(width=16, depth=2, num_heads=2, mlp_features=32, patch_size=8)
_QWEN = {
    "tokenizer": _WORDS,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 1,
    "intermediate_size": 48,
    "vocab_size": 32,
    "vision_depth": 2,
    "vision_width": 16,
    "vision_heads": 2,
    "patch_size": 4,
    "image": _IMAGE,
    "system_prompt": None,
}
BACKBONES: dict[str, BackboneCfg] = {
    "mock": MockBackboneCfg(tokenizer=_WORDS, image=_IMAGE, hidden_size=32, patch_size=8),
    "qwen2-vl": Qwen2VLCfg(**_QWEN, mrope_section=[2, 3, 3], vision_mlp_ratio=2.0),
    "qwen3-vl": Qwen3VLCfg(
        **_QWEN,
        mrope_section=[4, 2, 2],
        head_dim=16,
        vision_intermediate=24,
        num_position_embeddings=16,
        deepstack=[0, 1],
    ),
    "paligemma": PaliGemmaCfg(
        tokenizer=_WORDS,
        image=_IMAGE,
        vision=SiglipCfg(width=16, depth=2, mlp_dim=24, num_heads=2, patch_size=8),
        gemma=GemmaCfg(width=32, depth=2, mlp_dim=48, num_heads=2, num_kv_heads=1, head_dim=16),
        vocabulary_size=200,
    ),
    "prismatic": PrismaticCfg(
        tokenizer=_WORDS,
        image=_IMAGE.replace(fit="stretch"),
        featurizer=_TOWER.replace(class_token=True, num_registers=2, layer_scale=1.0),
        fused_featurizer=_TOWER.replace(attention_pool=True),
        language=LlamaCfg(
            vocabulary_size=200,
            width=32,
            mlp_features=48,
            depth=2,
            num_heads=2,
            num_key_value_heads=2,
        ),
        prompt_suffix_ids=[],
        slot_suffix_ids=[],
    ),
    "eagle": EagleCfg(
        tokenizer=_WORDS,
        image=_IMAGE,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        intermediate_size=48,
        vocab_size=40,
        vision_depth=2,
        vision_width=16,
        vision_heads=2,
        vision_intermediate=24,
        patch_size=4,
        system_prompt=None,
    ),
}
_DIT = DiTCfg(num_layers=2, num_heads=2, head_width=16)
_GROOT = {"dit": _DIT, "hidden_features": 24, "max_state_dim": 8, "max_action_dim": 6}
_GROOT |= {"vl_layers": 1, "vl_heads": 2, "vl_dropout": 0.0, "max_steps": 8}


def heads(files: str) -> dict[str, ActionHeadCfg]:
    """Every head; `files` is a directory that `write_fast` has written to."""
    return {
        "regression": RegressionHeadCfg(),
        "gaussian": GaussianHeadCfg(),
        "tokens": DiscreteTokenHeadCfg(num_bins=8),
        "flow": FlowMatchingHeadCfg(hidden_features=[32, 32]),
        "diffusion": DiffusionHeadCfg(hidden_features=[32, 32], eta=1.0),
        "dit": DiTHeadCfg(dit=_DIT),
        "groot-n15": GrootHeadCfg(**_GROOT, num_future_tokens=2),
        "groot-n17": n17_head(**_GROOT, state_dropout=0.0),
        "pi0": PiExpertHeadCfg(version="pi0", width=16, mlp_dim=24, num_heads=2, max_dims=6),
        "pi05": PiExpertHeadCfg(version="pi05", width=16, mlp_dim=24, num_heads=2, max_dims=6),
        "oft": OFTRegressionHeadCfg(hidden_features=24),
        "oft-diffusion": OFTDiffusionHeadCfg(
            hidden_features=24, num_train_steps=8, num_denoise_steps=4
        ),
        "oft-tokens": OFTTokenHeadCfg(num_bins=16, num_reserved_tokens=4, uses_state=True),
        "action-tokens": ActionTokenHeadCfg(num_bins=16, num_reserved_tokens=4),
        "fast": FastHeadCfg(files=files, num_reserved_tokens=4),
    }


def write_fast(folder) -> str:
    """A FAST vocabulary for chunks of five steps and three dimensions."""
    chunks = np.random.default_rng(0).uniform(-1, 1, (100, 5, 3))
    (folder / FILE).write_text(FastTokenizer.train(chunks, scale=3, num_tokens=40).to_json())
    return str(folder)
