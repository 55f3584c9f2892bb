"""lerobot's own pi0 and pi0.5, as small as its code lets them be.

It takes its sizes from a table of two names and from transformers' defaults, and sets some of them
itself. The table and the defaults are replaced by small ones here; its code is what runs.
"""

import contextlib
import importlib
from pathlib import Path

import numpy as np
import torch

from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.paligemma.configs import GemmaCfg, SiglipCfg
from rrf.policies.vla.published import lerobot_pi

PIXELS = 28
NAMES = ["<pad>", "<unk>", "<bos>", "<eos>", "\n", " ", "_", ":", ",", ";", "open", "the", "door"]
NAMES += ["Task", "State", "Action", *(str(number) for number in range(-1, 257))]
LANGUAGE = GemmaCfg(width=32, depth=2, mlp_dim=48, num_heads=2, num_kv_heads=1, head_dim=16)
EXPERT = LANGUAGE.replace(width=24, mlp_dim=40)
VISION = SiglipCfg(width=16, depth=1, mlp_dim=20, num_heads=2, patch_size=14)
SIZES = {"gemma_2b": LANGUAGE, "gemma_300m": EXPERT}
VOCABULARY = len(NAMES)


def make_small(monkeypatch, version):
    """Let lerobot build small models, and the import know the same sizes."""
    module = importlib.import_module(f"lerobot.policies.{version}.modeling_{version}")
    build_paligemma = module.PaliGemmaForConditionalGenerationWithPiGemma
    build_gemma = module.PiGemmaForCausalLM

    def small_paligemma(config):
        config.text_config.vocab_size = VOCABULARY
        vision = {"hidden_size": VISION.width, "num_hidden_layers": VISION.depth}
        vision |= {"num_attention_heads": VISION.num_heads, "intermediate_size": VISION.mlp_dim}
        for name, value in (vision | {"projection_dim": LANGUAGE.width}).items():
            setattr(config.vision_config, name, value)
        return build_paligemma(config=config)

    def small_gemma(config):
        config.vocab_size = VOCABULARY
        return build_gemma(config=config)

    monkeypatch.setattr(module, "PaliGemmaForConditionalGenerationWithPiGemma", small_paligemma)
    monkeypatch.setattr(module, "PiGemmaForCausalLM", small_gemma)
    monkeypatch.setattr(module, "get_gemma_config", SIZES.__getitem__)
    monkeypatch.setattr(lerobot_pi, "VARIANTS", SIZES)


def write_tokenizer(folder: Path) -> str:
    """A tokenizer for which each blank, underscore and line break is a token."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(NAMES)}
    plain = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    word = Regex(r"[A-Za-z]+|-?[0-9]+|[^A-Za-z0-9]")
    plain.pre_tokenizer = pre_tokenizers.Split(word, "isolated")
    first = [("<bos>", ids["<bos>"])]
    plain.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=first)
    roles = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"}
    path = folder / "tokenizer"
    PreTrainedTokenizerFast(tokenizer_object=plain, **roles).save_pretrained(path)
    return str(path)


def statistics(dims, seed):
    """Those of a dataset, whose last dimension never changes."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, dims)
    high = low + rng.uniform(0.5, 3, dims)
    high[-1] = low[-1] = 0.25
    std = (high - low) / 4
    stats = {"min": low - 1, "max": high + 1, "q01": low, "q99": high, "mean": (low + high) / 2}
    stats["max"][-1] = stats["min"][-1] = 0.25
    return {name: values.astype(np.float32) for name, values in (stats | {"std": std}).items()}


def write_policy(version, folder, tokenizer, cameras, state_dim=4, action_dim=3, **settings):
    """lerobot's policy with random weights in its folder, and its processors as lerobot made them.

    Args:
        version: pi0 or pi05.
        folder: The folder to make.
        tokenizer: A directory with one.
        cameras: Names of the cameras -> height and width.
        state_dim: Dimensions of the state.
        action_dim: Dimensions of the action.
        settings: Further fields of lerobot's config.
    """
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import (
        get_policy_class,
        make_policy_config,
        make_pre_post_processors,
    )

    images = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *size))
        for name, size in cameras.items()
    }
    config = make_policy_config(
        version,
        device="cpu",
        input_features={STATE: PolicyFeature(FeatureType.STATE, (state_dim,)), **images},
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (action_dim,))},
        **{
            "image_resolution": (PIXELS, PIXELS),
            "max_state_dim": 6,
            "max_action_dim": 6,
            **settings,
        },
    )
    torch.manual_seed(0)
    policy = get_policy_class(version)(config).eval()
    for name, parameter in policy.named_parameters():
        if "layernorm" in name or ".norm." in name:
            torch.nn.init.normal_(parameter, std=0.2)
    stats = {STATE: statistics(state_dim, 1), ACTION: statistics(action_dim, 2)}
    with replaced_tokenizer(tokenizer):
        both = make_pre_post_processors(config, dataset_stats=stats)
    policy.save_pretrained(folder)
    for processor in both:
        processor.save_pretrained(folder)
    return policy, both


@contextlib.contextmanager
def replaced_tokenizer(folder):
    """lerobot names PaliGemma's tokenizer on the hub in its code; here it is in a folder."""
    module = importlib.import_module("lerobot.processor.tokenizer_processor")
    original = module.AutoTokenizer.from_pretrained
    module.AutoTokenizer.from_pretrained = lambda name: original(folder)
    try:
        yield
    finally:
        module.AutoTokenizer.from_pretrained = original
