"""Directories of tiny models as lerobot's policies read them: config, tokenizer, random weights."""

import json
import typing
from collections.abc import Sequence
from pathlib import Path

import torch

WORDS = ["go", "to", "the", "red", "blue", "square", "open", "a", "door", "close", "drawer", "."]
_QWEN = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
_QWEN += ["<|video_pad|>"]
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'video' %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_LAYERS = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
TEXT_MODEL = {**_LAYERS, "num_hidden_layers": 2, "num_key_value_heads": 1}
VISION_MODEL = {**_LAYERS, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8}


def word_tokenizer(tokens: Sequence[str], **roles: typing.Any) -> typing.Any:
    """One token per word or special token, numbered as they stand here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(tokens)}
    plain = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", unk_token="<unk>", **roles
    )


def tiny_tokenizer(*specials: str, **names: str) -> typing.Any:
    """One token per word. `names` are special tokens with a role: image_token="<image>"."""
    known = ["<pad>", "<unk>", "<bos>", "<eos>", *names.values(), *specials]
    tokenizer = word_tokenizer(
        [*dict.fromkeys(known), *WORDS],
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=names,
    )
    tokenizer.add_tokens([*dict.fromkeys([*names.values(), *specials])], special_tokens=True)
    return tokenizer


def write_tiny_tokenizer(folder: Path) -> str:
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def write_tiny_clip(folder: Path) -> str:
    from transformers import CLIPConfig, CLIPModel

    tokenizer = tiny_tokenizer()
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "projection_dim": 16,
    }
    text = {**sizes, "vocab_size": len(tokenizer), "max_position_embeddings": 16}
    text |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    vision = {**sizes, "image_size": 32, "patch_size": 16}
    _save(CLIPModel(CLIPConfig(text_config=text, vision_config=vision)), folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_tiny_qwen2_5_vl(folder: Path) -> str:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = _write_qwen_processor(folder)
    config = Qwen2_5_VLConfig(**_qwen_sizes(tokenizer, "qwen2_5_vl"))
    _save(Qwen2_5_VLForConditionalGeneration(config), folder)
    return str(folder)


def write_tiny_qwen3_vl(folder: Path) -> str:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    tokenizer = _write_qwen_processor(folder, newer=True)
    config = Qwen3VLConfig(**_qwen_sizes(tokenizer, "qwen3_vl"))
    _save(Qwen3VLForConditionalGeneration(config), folder)
    return str(folder)


def _qwen_sizes(tokenizer: typing.Any, family: str) -> dict[str, typing.Any]:
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in _QWEN}
    text = {
        "vocab_size": len(tokenizer) + 64,  # policies add tokens of their own
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]},
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 32,
        "spatial_merge_size": 2,
    }
    if family == "qwen3_vl":
        text["rope_scaling"]["mrope_interleaved"] = True
        vision |= {"patch_size": 16, "deepstack_visual_indexes": [0]}
        vision |= {"num_position_embeddings": 16}
    else:
        vision |= {"patch_size": 14, "fullatt_block_indexes": [0], "window_size": 56}
    return {
        "text_config": text,
        "vision_config": vision,
        "tie_word_embeddings": True,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _write_qwen_processor(folder: Path, *specials: str, newer: bool = False) -> typing.Any:
    """Write the processor of Qwen2.5-VL or Qwen3-VL, and return its tokenizer."""
    from transformers import (
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    tokenizer = tiny_tokenizer(*_QWEN, *specials)
    pixels = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    if newer:
        image = Qwen2VLImageProcessor(
            size={"shortest_edge": 1024, "longest_edge": 4096}, patch_size=16
        )
        processor = Qwen3VLProcessor(image, tokenizer, Qwen3VLVideoProcessor(), chat_template=_CHAT)
    else:
        pixels = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
        image = Qwen2VLImageProcessor(size=pixels)
        processor = Qwen2_5_VLProcessor(
            image, tokenizer, Qwen2VLVideoProcessor(), chat_template=_CHAT
        )
    processor.save_pretrained(folder)
    return tokenizer


def write_tiny_internvl(folder: Path) -> str:
    from transformers import InternVLConfig, InternVLModel

    tokenizer = tiny_tokenizer("<img>", "</img>", "<IMG_CONTEXT>")
    config = InternVLConfig(
        text_config={"model_type": "qwen2", "vocab_size": len(tokenizer), **TEXT_MODEL},
        vision_config=VISION_MODEL,
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    _save(InternVLModel(config), folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_tiny_wall_x(folder: Path) -> str:
    """No weights at all: what is missing stays random, as in lerobot."""
    from lerobot.policies.wall_x.qwen_model import Qwen2_5_VLConfig
    from safetensors.torch import save_file

    tokenizer = _write_qwen_processor(folder, "<|action|>", "<|propri|>")
    sizes = _qwen_sizes(tokenizer, "qwen2_5_vl")
    text = sizes.pop("text_config")
    config = Qwen2_5_VLConfig(
        **{**text, **sizes},
        num_experts=2,
        experts=[
            {"hidden_size": 32, "intermediate_size": 64, "hidden_act": "silu"},
            {"hidden_size": 32, "intermediate_size": 32, "hidden_act": "silu"},
        ],
        dof_config={"arm": 8},
        agent_pos_config={"arm": 8},
        dim_inputs=(32, 32),
        attention_moe=False,
        mlp_moe=True,
    )
    config.save_pretrained(folder)
    save_file({}, folder / "model.safetensors", {"format": "pt"})
    return str(folder)


_MOLMO = ["<im_patch>", "<im_low>", "<im_start>", "<low_res_im_start>", "<frame_start>"]
_MOLMO += ["<im_end>", "<frame_end>", "<im_col>", "<|image|>", "<|video|>", "<|im_start|>"]
_MOLMO += ["<|im_end|>", "<action_output>", "<action_start>", "<action_end>", "<state_start>"]
_MOLMO += ["<state_end>", "<setup_start>", "<setup_end>", "<control_start>", "<control_end>"]
_MOLMO += [f"<state_{number}>" for number in range(8)]


def write_tiny_molmoact2(folder: Path) -> str:
    from lerobot.policies.molmoact2.molmoact2_hf_model.configuration_molmoact2 import (
        MolmoAct2Config,
    )
    from lerobot.policies.molmoact2.molmoact2_hf_model.modeling_molmoact2 import (
        MolmoAct2ForConditionalGeneration,
    )
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    end = "<|endoftext|>"
    vocabulary = {token: i for i, token in enumerate([*sorted(ByteLevel.alphabet()), end])}
    ends = {"pad_token": end, "eos_token": end, "bos_token": end}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[], **ends)
    tokenizer.add_tokens(_MOLMO, special_tokens=True)
    tokenizer.save_pretrained(folder)
    heads = {"num_attention_heads": 2, "head_dim": 8, "intermediate_size": 32, "hidden_size": 16}
    places = {
        "image_start_token_id": "<im_start>",
        "low_res_image_start_token_id": "<low_res_im_start>",
        "image_end_token_id": "<im_end>",
        "image_low_res_id": "<im_low>",
        "image_patch_id": "<im_patch>",
        "image_col_id": "<im_col>",
        "frame_start_token_id": "<frame_start>",
        "frame_end_token_id": "<frame_end>",
        "action_output_token_id": "<action_output>",
        "action_start_token_id": "<action_start>",
        "action_end_token_id": "<action_end>",
        "state_start_token_id": "<state_start>",
        "state_end_token_id": "<state_end>",
        "state_token_start_id": "<state_0>",
    }
    config = MolmoAct2Config(
        vit_config={
            **heads,
            "num_key_value_heads": 2,
            "num_hidden_layers": 2,
            "image_default_input_size": (28, 28),
            "image_patch_size": 14,
            "image_num_pos": 4,
        },
        adapter_config={
            **heads,
            "num_key_value_heads": 2,
            "vit_layers": (-1,),
            "text_hidden_size": 16,
        },
        text_config={
            **heads,
            "num_key_value_heads": 1,
            "num_hidden_layers": 2,
            "vocab_size": len(tokenizer),
            "additional_vocab_size": 8,
            "max_position_embeddings": 512,
        },
        action_expert_config={
            "hidden_size": 16,
            "num_layers": 2,
            "num_heads": 2,
            "ffn_multiple_of": 8,
            "timestep_embed_dim": 8,
        },
        flow_matching_num_steps=3,
        num_state_tokens=8,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in places.items()},
    )
    _save(MolmoAct2ForConditionalGeneration(config), folder)
    sizes = {"size": {"height": 28, "width": 28}, "patch_size": 14, "pooling_size": [2, 2]}
    image = {**sizes, "max_crops": 1, "overlap_margins": [0, 0], "crop_mode": "resize"}
    processor = {"image_processor": image, "video_processor": sizes}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    return str(folder)


def write_tiny_resnet(folder: Path) -> str:
    """Features of 4 by 4 places for images of 32 by 32 pixels."""
    from transformers import ResNetConfig, ResNetModel

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    _save(ResNetModel(ResNetConfig(**sizes, layer_type="basic")), folder)
    return str(folder)


def _save(model: torch.nn.Module, folder: Path) -> None:
    model.save_pretrained(folder)  # type: ignore[operator]
