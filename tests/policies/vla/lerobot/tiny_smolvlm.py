"""A directory with a vision-language model of SmolVLA's kind, tiny and without weights."""

from pathlib import Path

WORDS = ["go", "to", "the", "red", "blue", "square", "open", "a", "door", "close", "drawer"]


def write_tiny_smolvlm(folder: Path, **changes) -> str:
    """Write config, processor and tokenizer; `changes` are fields of the config."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    special = ["<pad>", "<unk>", "<end_of_utterance>"]
    images = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
    }
    names = [*special, *images.values(), "\n", *WORDS]
    plain = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end_of_utterance>",
        extra_special_tokens=images,
    )
    size = {"longest_edge": 32}
    sampling = {"fps": 1, "max_frames": 4, "video_size": size}
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size=size, max_image_size=size),
        tokenizer,
        SmolVLMVideoProcessor(
            size=size, max_image_size=size, video_sampling=sampling, num_frames=4, fps=1
        ),
        image_seq_len=4,
    )
    config = SmolVLMConfig(
        image_token_id=names.index("<image>"),
        pad_token_id=0,
        scale_factor=2,
        text_config={
            "model_type": "llama",
            "vocab_size": len(names),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "pad_token_id": 0,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        **changes,
    )
    processor.save_pretrained(folder)
    config.save_pretrained(folder)
    return str(folder)
