"""OpenVLA (arXiv:2406.09246) and OpenVLA-OFT (arXiv:2502.19645).

Fine-tuning at their real size, and the same architectures with 4 million parameters, which learn
from random weights on a laptop.

The recipes of real size are those of the papers: low-rank adapters of rank 32 in all linear layers.
They start from the published openvla-7b, which `rrf models setup` fetches, and see images and read
instructions as it does.
"""

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.networks.vlm.configs import ImageRuleCfg, LoRACfg, TokenizerCfg
from rrf.networks.vlm.prismatic.configs import (
    OPENVLA_IMAGE,
    LlamaCfg,
    PrismaticCfg,
    RandomWeights,
    TowerCfg,
)
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.configs import ActionHeadCfg
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.heads.oft_configs import OFTRegressionHeadCfg, OFTTokenHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.compact_vla import pretrain
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_MODEL = "openvla-7b"
PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
ALL_LINEAR = (
    r"vision_backbone\..*\.(qkv|q|kv|proj|fc1|fc2)|projector\.fc[123]"
    r"|language_model\.(lm_head|.*\.([qkvo]_proj|(gate|up|down)_proj))"
)
"""All linear layers of the backbone, and the patch embeddings: peft's "all-linear", which the
original recipe uses, goes by the names of layers, and theirs is that of a linear layer."""


def openvla_sft() -> SupervisedRunnerCfg:
    """Fine-tuning of OpenVLA: one action at a time, as tokens."""
    return _fine_tuning("openvla-sft", ActionTokenHeadCfg(), chunk_length=1, batch_size=16)


def openvla_oft_sft() -> SupervisedRunnerCfg:
    """Fine-tuning of OpenVLA-OFT: a chunk of eight actions in one pass, by an L1 loss."""
    return _fine_tuning("openvla-oft-sft", OFTRegressionHeadCfg(), chunk_length=8, batch_size=64)


def openvla_oft_tokens_sft() -> SupervisedRunnerCfg:
    """Fine-tuning of OpenVLA-OFT with tokens: a chunk of eight actions in one pass, each of them
    a token of the language. It is what RLinf and SimpleVLA-RL reinforce."""
    return _fine_tuning("openvla-oft-tokens-sft", OFTTokenHeadCfg(), chunk_length=8, batch_size=64)


def openvla_laptop() -> SupervisedRunnerCfg:
    """OpenVLA with 4 million parameters, on the demonstrations of Meta-World."""
    return _laptop("openvla-laptop", ActionTokenHeadCfg(num_reserved_tokens=0))


def openvla_oft_laptop() -> SupervisedRunnerCfg:
    """OpenVLA-OFT with 4 million parameters, on the demonstrations of Meta-World."""
    return _oft_laptop("openvla-oft-laptop", OFTRegressionHeadCfg(hidden_features=256))


def openvla_oft_tokens_laptop() -> SupervisedRunnerCfg:
    """OpenVLA-OFT with tokens and 4 million parameters, on the demonstrations of Meta-World."""
    head = OFTTokenHeadCfg(num_reserved_tokens=0, uses_state=True)
    return _oft_laptop("openvla-oft-tokens-laptop", head)


def _fine_tuning(
    name: str, head: ActionHeadCfg, chunk_length: int, batch_size: int
) -> SupervisedRunnerCfg:
    return SupervisedRunnerCfg(
        experiment_name=name,
        policy=VLMPolicyCfg(
            chunk_length=chunk_length,
            backbone=PrismaticCfg(
                weights=_MODEL,
                tokenizer=TokenizerCfg(files=_MODEL),
                tuning=LoRACfg(rank=32, alpha=16, target=ALL_LINEAR),
                gradient_checkpointing=True,
                dtype="bf16",
                image=OPENVLA_IMAGE,
                instructions="lower",
            ),
            head=head,
            prompt=PROMPT,
            clips_state=head.sees_state,
            state_normalization="quantile",
            action_normalization="quantile",
        ),
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=8, state_noise=0.0)),
        optimizer=AdamWCfg(lr=5e-4, weight_decay=0.01),
        schedule=ScheduleCfg(kind="constant"),
        ema=None,
        max_steps=50_000,
        batch_size=batch_size,
        precision="bf16",
        device="cuda",
        save_interval=2500,
        validation_interval=2500,
    )


def _oft_laptop(name: str, head: ActionHeadCfg) -> SupervisedRunnerCfg:
    """Images are not shifted: the towers know places by learned positions, and a shift of two
    pixels hides by as much where an object is."""
    cfg = _laptop(name, head, random_weights="keep_variance")
    return cfg.replace(
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=0, state_noise=0.02)),
        optimizer=cfg.optimizer.replace(lr=1e-3),
        max_steps=3400,
        batch_size=16,
    )


def _laptop(
    name: str, head: ActionHeadCfg, random_weights: RandomWeights = "stock"
) -> SupervisedRunnerCfg:
    tower = TowerCfg(width=128, depth=4, num_heads=4, mlp_features=512, patch_size=16)
    backbone = PrismaticCfg(
        image=ImageRuleCfg(size=(64, 64), fit="stretch"),
        featurizer=tower.replace(
            class_token=True, num_registers=4, layer_scale=1.0,
            mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
        ),
        fused_featurizer=tower.replace(attention_pool=True),
        language=LlamaCfg(
            vocabulary_size=512, width=192, mlp_features=512, depth=3, num_heads=6,
            num_key_value_heads=6, max_tokens=256,
        ),
        tokenizer=TokenizerCfg(words=vocabulary_of(INSTRUCTIONS.values())),
        prompt_suffix_ids=[],
        slot_suffix_ids=[],
        random_weights=random_weights,
    )  # fmt: skip
    return pretrain().replace(
        experiment_name=name,
        policy=VLMPolicyCfg(
            cameras=["corner2"],
            image_size=(64, 64),
            state_dim=4,
            action_dim=4,
            chunk_length=2,
            backbone=backbone,
            head=head,
            state_normalization="min_max",
        ),
        optimizer=AdamWCfg(lr=1.5e-3, weight_decay=1e-3),
        max_steps=2700,
        batch_size=32,
    )
