"""A directory with a vision-language model of SmolVLA's kind, tiny and without weights."""

from pathlib import Path

from tests.policies.vla.lerobot.tiny_backbones import (
    TEXT_MODEL,
    VISION_MODEL,
    WORDS,
    word_tokenizer,
)


def write_tiny_smolvlm(folder: Path, **changes) -> str:
    """Write config, processor and tokenizer; `changes` are fields of the config."""
    from transformers import (
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
    tokenizer = word_tokenizer(names, eos_token="<end_of_utterance>", extra_special_tokens=images)
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
            "head_dim": 16,
            "pad_token_id": 0,
            **TEXT_MODEL,
        },
        vision_config=VISION_MODEL,
        **changes,
    )
    processor.save_pretrained(folder)
    config.save_pretrained(folder)
    return str(folder)
