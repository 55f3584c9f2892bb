"""Qwen2-VL and Qwen3-VL with a regression head: the published sizes, and one for a laptop.

The published sizes start from the published weights, which `rrf models setup NAME` fetches.
`policy.backbone.weights=null` starts from random ones.
"""

from rrf.algorithms.vla.configs import BehaviorCloningCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.networks.configs import plain_mlp
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.qwen.configs import Qwen2VLCfg, Qwen3VLCfg, QwenVLCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.compact_vla import pretrain
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_WORDS = TokenizerCfg(words=vocabulary_of(INSTRUCTIONS.values()))


def qwen2vl_2b_pretrain() -> SupervisedRunnerCfg:
    """Qwen2-VL-2B, all weights trained."""
    return _published("qwen2vl-2b-pretrain", "qwen2-vl-2b", Qwen2VLCfg())


def qwen2vl_7b_pretrain() -> SupervisedRunnerCfg:
    """Qwen2-VL-7B, all weights trained."""
    backbone = Qwen2VLCfg(
        hidden_size=3584,
        num_heads=28,
        num_kv_heads=4,
        intermediate_size=18944,
        vocab_size=152064,
    )
    return _published("qwen2vl-7b-pretrain", "qwen2-vl-7b", backbone)


def qwen3vl_2b_pretrain() -> SupervisedRunnerCfg:
    """Qwen3-VL-2B, all weights trained."""
    return _published("qwen3vl-2b-pretrain", "qwen3-vl-2b", Qwen3VLCfg())


def qwen3vl_8b_pretrain() -> SupervisedRunnerCfg:
    """Qwen3-VL-8B, all weights trained."""
    backbone = Qwen3VLCfg(
        hidden_size=4096,
        num_layers=36,
        num_heads=32,
        intermediate_size=12288,
        vision_depth=27,
        vision_width=1152,
        vision_intermediate=4304,
        deepstack=[8, 16, 24],
    )
    return _published("qwen3vl-8b-pretrain", "qwen3-vl-8b", backbone)


def qwen2vl_laptop() -> SupervisedRunnerCfg:
    """A small Qwen2-VL with random weights, on Meta-World."""
    backbone = Qwen2VLCfg(
        tokenizer=_WORDS,
        image=Qwen2VLCfg().image.replace(size=(64, 64)),
        hidden_size=128,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=384,
        vocab_size=128,
        mrope_section=[4, 6, 6],
        vision_depth=3,
        vision_width=128,
        vision_heads=4,
        vision_mlp_ratio=2.0,
        patch_size=8,
        system_prompt=None,
    )
    return _laptop("qwen2vl-laptop", backbone)


def qwen3vl_laptop() -> SupervisedRunnerCfg:
    """A small Qwen3-VL with random weights, on Meta-World."""
    backbone = Qwen3VLCfg(
        tokenizer=_WORDS,
        image=ImageRuleCfg(size=(64, 64)),
        hidden_size=128,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=384,
        vocab_size=128,
        mrope_section=[6, 5, 5],
        vision_depth=3,
        vision_width=128,
        vision_heads=4,
        vision_intermediate=256,
        patch_size=8,
        num_position_embeddings=64,
        deepstack=[0, 1],
        system_prompt=None,
    )
    return _laptop("qwen3vl-laptop", backbone)


# All weights are trained, so they are kept in float32: bfloat16 would lose small steps. `precision`
# computes in bfloat16 all the same.
def _published(name: str, model: str, backbone: QwenVLCfg) -> SupervisedRunnerCfg:
    backbone = backbone.replace(
        weights=model,
        tokenizer=TokenizerCfg(files=model),
        gradient_checkpointing=True,
    )
    return SupervisedRunnerCfg(
        experiment_name=name,
        policy=VLMPolicyCfg(
            backbone=backbone, chunk_length=16, features=1024, trunk=plain_mlp([1024], "GELU")
        ),
        algorithm=BehaviorCloningCfg(),
        optimizer=AdamWCfg(lr=2e-5, betas=(0.9, 0.95), weight_decay=1e-2),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.03, final_factor=0.1),
        ema=None,
        max_steps=20_000,
        batch_size=32,
        precision="bf16",
        device="cuda",
        validation_interval=1000,
        save_interval=2000,
    )


def _laptop(name: str, backbone: QwenVLCfg) -> SupervisedRunnerCfg:
    return pretrain().replace(
        experiment_name=name,
        policy=VLMPolicyCfg(backbone=backbone, chunk_length=2),
        optimizer=AdamWCfg(lr=6e-4, betas=(0.9, 0.95), weight_decay=1e-2),
        max_steps=1500,
    )
