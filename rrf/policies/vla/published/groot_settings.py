"""What config.json of GR00T N1.5 and N1.7 says of head and backbone.

N1.5 has the head's settings in action_head_cfg and the backbone's in backbone_cfg; N1.7 has all in
one. What the processor does with states, actions and images stands in files of its own.
"""

import typing
from pathlib import Path

from rrf import atomic
from rrf.policies.vla.published.settings import Settings
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

_TRAINING = "it belongs to training"
_PROCESSOR = "the processor's files say it"
_NUMBERS = "it says in which numbers the original computes"
_PARTS = ("action_head_cfg", "backbone_cfg")
_FIELDS = {
    "num_inference_timesteps": "head.num_denoise_steps",
    "num_timestep_buckets": "head.num_time_buckets",
    "max_state_dim": "head.max_state_dim",
    "max_action_dim": "head.max_action_dim",
    "max_num_embodiments": "head.num_embodiments",
    "num_target_vision_tokens": "head.num_future_tokens",
    "attend_text_every_n_blocks": "head.attend_text_every",
    "max_seq_len": "head.max_steps",
    "noise_s": "head.noise_scale",
    "state_dropout_prob": "head.state_dropout",
    "select_layer": "backbone.num_layers",
    "action_horizon": "chunk_length",
}
"""Setting -> our field."""
_TRANSFORMERS = {
    "diffusion_model_cfg": {
        "num_layers": "head.dit.num_layers",
        "num_attention_heads": "head.dit.num_heads",
        "attention_head_dim": "head.dit.head_width",
        "dropout": "head.dit.dropout",
        "interleave_self_attention": "head.dit.interleaves",
    },
    "vl_self_attention_cfg": {
        "num_layers": "head.vl_layers",
        "num_attention_heads": "head.vl_heads",
        "dropout": "head.vl_dropout",
    },
}
_SETTINGS = Settings(
    honoured=(*_FIELDS, *_PARTS, *_TRANSFORMERS, "rrf"),
    harmless={
        "action_dim": "it is max_action_dim",
        "hidden_size": "the shapes of the weights say it",
        "input_embedding_dim": "the shapes of the weights say it",
        "backbone_embedding_dim": "the shapes of the weights say it",
        "tune_*": _TRAINING,
        "noise_beta_*": _TRAINING,
        "attn_dropout": _TRAINING,
        "backbone_trainable_params_fp32": _TRAINING,
        "random_rotation_angle": _TRAINING,
        "color_jitter_params": _TRAINING,
        "use_albumentations_transforms": _PROCESSOR,
        "extra_augmentation_config": _TRAINING,
        "image_crop_size": _PROCESSOR,
        "image_target_size": _PROCESSOR,
        "shortest_image_edge": _PROCESSOR,
        "crop_fraction": _PROCESSOR,
        "letter_box_transform": _PROCESSOR,
        "formalize_language": _PROCESSOR,
        "apply_sincos_state_encoding": _PROCESSOR,
        "use_percentiles": _PROCESSOR,
        "use_relative_action": _PROCESSOR,
        "use_mean_std": _PROCESSOR,
        "model_dtype": _NUMBERS,
        "compute_dtype": _NUMBERS,
        "load_bf16": _NUMBERS,
        "use_flash_attention": "it only makes the original faster",
        "attn_implementation": "it only makes the original faster",
        "model_name": "the weights of the backbone are in the folder",
        "model_revision": "the weights of the backbone are in the folder",
        "backbone_model_type": "the names of the weights say it",
        "rtc_ramp_rate": "it belongs to real-time chunking; `rrf serve` has its own",
        "eagle_path": "the weights of the backbone are in the folder",
    },
    only={
        "add_pos_embed": (True, "actions have learned positions"),
        "use_vlln": (True, "the backbone's tokens are normalised"),
        "use_vl_self_attention": (True, "the tokens attend to each other first"),
        "use_alternate_vl_dit": (True, "blocks attend to text and to images in turn"),
        "reproject_vision": (False, "the backbone has no such layer"),
        "project_to_dim": (None, "the backbone has no such layer"),
        "state_history_length": (1, "the head sees the present state"),
        "exclude_state": (False, "the head sees the state"),
        "use_tactile": (False, "the head sees no tactile arrays"),
        "strict_action_padding_mask": (False, "padded actions are attended to"),
    },
)
_TRANSFORMER = Settings(
    honoured=(
        *("num_layers", "num_attention_heads", "attention_head_dim"),
        *("dropout", "interleave_self_attention"),
    ),
    harmless={
        "final_dropout": _TRAINING,
        "output_dim": "the shapes of the weights say it",
        "cross_attention_dim": "the shapes of the weights say it",
    },
    only={
        "norm_type": ("ada_norm", "the time conditions the norms"),
        "positional_embeddings": (None, "positions are learned, outside of the transformer"),
    },
)


def fitted(folder: Path, cfg: VLMPolicyCfg) -> VLMPolicyCfg:
    """`cfg` with what config.json says of head and backbone.

    Raises:
        ValueError: For a setting that is neither honoured nor harmless.
    """
    file = folder / "config.json"
    if not file.is_file():
        return cfg
    config = atomic.parse_json(file.read_text(encoding="utf-8"))
    outer = {name: value for name, value in config.items() if name not in _common()}
    changes: dict[str, typing.Any] = {}
    for where, part in [(file, outer), *((f"{file}: {n}", config.get(n) or {}) for n in _PARTS)]:
        _SETTINGS.check(where, part)
        changes |= {field: part[name] for name, field in _FIELDS.items() if name in part}
        for kind, fields in _TRANSFORMERS.items():
            sizes = part.get(kind) or {}
            _TRANSFORMER.check(f"{where}: {kind}", sizes)
            changes |= {field: sizes[name] for name, field in fields.items() if name in sizes}
    return cfg.override(changes)


def _common() -> frozenset[str]:
    """What transformers writes into every config.json; ids of tokens and names, no sizes."""
    from transformers import PretrainedConfig

    return frozenset(PretrainedConfig().to_dict()) | {"auto_map", "torch_dtype", "dtype"}
