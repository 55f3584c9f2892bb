"""Small Qwen backbones with a real tokenizer, for tests."""

from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.qwen.backbone import SPECIALS
from rrf.networks.vlm.qwen.configs import Qwen2VLCfg, Qwen3VLCfg

PROMPTS = ["pick up the red cube", "open"]
SPLIT = r"""[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def write_tokenizer(folder: Path) -> Path:
    """A small byte-level BPE tokenizer that has Qwen's special tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*PROMPTS, "You are a helpful assistant."] * 3, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def tiny2(files: Path, **changes) -> Qwen2VLCfg:
    sizes = {"hidden_size": 64, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2}
    sizes |= {"intermediate_size": 96, "vocab_size": 400, "mrope_section": [2, 3, 3]}
    sizes |= {"vision_depth": 2, "vision_width": 32, "vision_heads": 2, "vision_mlp_ratio": 2.0}
    image = Qwen2VLCfg().image.replace(size=(56, 84))
    tokenizer = TokenizerCfg(files=str(files))
    return Qwen2VLCfg(image=image, tokenizer=tokenizer, **{**sizes, **changes})


def tiny3(files: Path, **changes) -> Qwen3VLCfg:
    sizes = {"hidden_size": 64, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    sizes |= {"intermediate_size": 96, "vocab_size": 400, "mrope_section": [4, 2, 2]}
    sizes |= {"vision_depth": 3, "vision_width": 32, "vision_heads": 2, "vision_intermediate": 48}
    sizes |= {"num_position_embeddings": 16, "deepstack": [0, 2]}
    tokenizer = TokenizerCfg(files=str(files))
    image = ImageRuleCfg(size=(64, 96))
    return Qwen3VLCfg(image=image, tokenizer=tokenizer, **{**sizes, **changes})
