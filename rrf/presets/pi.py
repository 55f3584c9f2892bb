"""pi0 and pi0.5: real size for a GPU, and laptop size for two cores.

The real sizes and the settings of their optimizer are those of openpi. They start from the
published weights and PaliGemma's tokenizer, which `rrf models setup` fetches; `rrf doctor --preset
NAME` says how much memory they need. Weights stay in float32, because bfloat16 would lose the small
steps of this optimizer (`benchmarks/bf16_weights.py`); `precision` computes in bfloat16 all the
same.

The laptop sizes have random weights, the images and the vocabulary of Meta-World, and the parts of
the real ones. Their prompts are words of a fixed vocabulary.
"""

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.paligemma.configs import GemmaCfg, PaliGemmaCfg, SiglipCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.compact_vla import pretrain
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_PI0_PROMPT = "{instruction}\n"
_PI05_PROMPT = "Task: {instruction}, State: {state};\nAction: "
_TOKENIZER = "paligemma-3b"
_NUM_STATE_BINS = 256
_NUM_SPECIAL_TOKENS = 4  # padding, begin, end, and the token of unknown words


def pi0_sft() -> SupervisedRunnerCfg:
    """pi0 (arXiv:2410.24164) on your dataset; 3.2 billion parameters."""
    return _sft("pi0-sft", "pi0-base", pi0())


def pi05_sft() -> SupervisedRunnerCfg:
    """pi0.5 (arXiv:2504.16054) on your dataset; 3.4 billion parameters."""
    return _sft("pi05-sft", "pi05-base", pi05())


def pi0_laptop() -> SupervisedRunnerCfg:
    """pi0 with 2 million parameters, on the demonstrations of Meta-World."""
    words = vocabulary_of(INSTRUCTIONS.values())
    return _laptop("pi0-laptop", _laptop_policy(pi0(), words))


def pi05_laptop() -> SupervisedRunnerCfg:
    """pi0.5 with 2 million parameters, on the demonstrations of Meta-World."""
    bins = map(str, range(_NUM_STATE_BINS))
    words = {*vocabulary_of(INSTRUCTIONS.values()), "task", "state", "action", *bins}
    return _laptop("pi05-laptop", _laptop_policy(pi05(), sorted(words)))


def pi0() -> VLMPolicyCfg:
    """The policy of the published pi0."""
    return VLMPolicyCfg(
        chunk_length=50,
        backbone=PaliGemmaCfg(
            vision=SiglipCfg(width=1152, depth=27, mlp_dim=4304, num_heads=16, patch_size=14),
            gemma=GemmaCfg(
                width=2048, depth=18, mlp_dim=16384, num_heads=8, num_kv_heads=1, head_dim=256
            ),
            vocabulary_size=257152,
            max_tokens=48,
            instructions="openpi",
            tokenizer=TokenizerCfg(files=_TOKENIZER),
            image=ImageRuleCfg(size=(224, 224), fit="pad"),
            gradient_checkpointing=True,
        ),
        head=PiExpertHeadCfg(version="pi0", width=1024, mlp_dim=4096, num_heads=8, max_dims=32),
        prompt=_PI0_PROMPT,
        state_normalization="mean_std",
        action_normalization="mean_std",
    )


def pi05() -> VLMPolicyCfg:
    """The policy of the published pi0.5."""
    cfg = pi0()
    return cfg.replace(
        backbone=cfg.backbone.replace(max_tokens=200),
        head=cfg.head.replace(version="pi05"),
        prompt=_PI05_PROMPT,
        state_normalization="quantile",
        action_normalization="quantile",
    )


def _sft(experiment_name: str, model: str, policy: VLMPolicyCfg) -> SupervisedRunnerCfg:
    return SupervisedRunnerCfg(
        experiment_name=experiment_name,
        pretrained=model,
        policy=policy,
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=4, state_noise=0.0)),
        optimizer=AdamWCfg(lr=2.5e-5, betas=(0.9, 0.95), weight_decay=1e-10),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=1 / 30, final_factor=0.1),
        ema=None,
        max_steps=30_000,
        batch_size=32,
        precision="bf16",
        device="cuda",
        validation_interval=1000,
        save_interval=5000,
    )


def _laptop(experiment_name: str, policy: VLMPolicyCfg) -> SupervisedRunnerCfg:
    return pretrain().replace(experiment_name=experiment_name, policy=policy)


def _laptop_policy(real: VLMPolicyCfg, words: list[str]) -> VLMPolicyCfg:
    """A small policy with the prompt and the normalisation of a real one."""
    return real.replace(
        chunk_length=2,
        backbone=PaliGemmaCfg(
            vision=SiglipCfg(width=128, depth=3, mlp_dim=384, num_heads=4, patch_size=8),
            gemma=GemmaCfg(
                width=128, depth=4, mlp_dim=384, num_heads=4, num_kv_heads=1, head_dim=32
            ),
            vocabulary_size=len(words) + _NUM_SPECIAL_TOKENS,
            max_tokens=48,
            instructions="openpi",
            tokenizer=TokenizerCfg(words=words),
            image=ImageRuleCfg(size=(64, 64)),
        ),
        head=real.head.replace(
            width=128,
            mlp_dim=384,
            num_heads=4,
            max_dims=4,
            num_denoise_steps=4,
            num_noise_draws=4,
        ),
    )
