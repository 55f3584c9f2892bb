"""What lerobot 0.6.1 writes about pi0 and pi0.5 beside their weights, field by field: honoured by
`rrf.policies.vla.published.formats.Pi`, known to change no action, or refused by name.
"""

import json
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.policies.vla.lerobot.fields import base_fields, config_fields

_HONOURED = (
    "input_features",
    "output_features",
    "normalization_mapping",
    "chunk_size",
    "num_inference_steps",
    "tokenizer_max_length",
    "empty_cameras",  # they are left out, as lerobot masks them
)
_BY_WEIGHTS = (  # whose shapes would not fit
    "paligemma_variant",
    "action_expert_variant",
    "max_state_dim",
    "max_action_dim",
    "image_resolution",
)
_TRAINING = (  # and how weights are held
    "dtype",
    "gradient_checkpointing",
    "freeze_vision_encoder",
    "train_expert_only",
    "time_sampling_beta_alpha",
    "time_sampling_beta_beta",
    "time_sampling_scale",
    "time_sampling_offset",
)
_EXECUTION = ("n_action_steps", "rtc_config", "compile_model", "compile_mode", "device")
_OF_RELATIVE = ("relative_exclude_joints", "action_feature_names")  # without effect on their own
_ONLY = {
    "use_relative_actions": (False, "its actions are relative to the state, ours are not"),
    "n_obs_steps": (1, "it sees past observations"),
    "min_period": (4e-3, "the embedding of time has another period"),
    "max_period": (4.0, "the embedding of time has another period"),
    "use_peft": (False, "its adapters are in files of their own; merge them"),
}
_PREFIXES = ("optimizer_", "scheduler_")
_KNOWN_STEPS = {
    "rename_observations_processor": {"rename_map": {}},
    "to_batch_processor": {},
    "pi0_new_line_processor": {},
    "pi05_prepare_state_tokenizer_processor_step": {},
    "tokenizer_processor": {"task_key": "task", "padding_side": "right", "truncation": True},
    "device_processor": {},
    "relative_actions_processor": {"enabled": False},
    "absolute_actions_processor": {"enabled": False},
    "normalizer_processor": {},
    "unnormalizer_processor": {},
}
"""Step -> settings that must be these, if they are given."""


def check(folder: Path, config: Mapping[str, typing.Any]) -> None:
    """Refuse what would change actions unnoticed.

    Raises:
        ValueError: For a field of config.json, or a step of a processor or its setting, that is
            neither honoured nor harmless.
    """
    known = config_fields(config["type"]) | base_fields() | {"type"}
    harmless = (*_HONOURED, *_BY_WEIGHTS, *_TRAINING, *_EXECUTION, *_OF_RELATIVE)
    file = folder / "config.json"
    for name, value in config.items():
        if name not in known:
            raise ValueError(
                f"{file} has the setting {name}, which the installed lerobot does not know; it "
                "comes from another version"
            )
        if name in _ONLY and value != _ONLY[name][0]:
            raise ValueError(f"{file} has {name} {value}, which cannot be had: {_ONLY[name][1]}")
        is_handled = name in (*harmless, *_ONLY, *base_fields(), "type")
        if not is_handled and not name.startswith(_PREFIXES):
            raise ValueError(f"{file} has the setting {name}, which is not handled yet")
    for name in ("policy_preprocessor", "policy_postprocessor"):
        _check_steps(folder / f"{name}.json")


def is_empty_camera(name: str) -> bool:
    """Whether a camera is one of those that lerobot adds and masks out."""
    return name.startswith("empty_camera_")


def _check_steps(file: Path) -> None:
    if not file.is_file():
        return
    for step in json.loads(file.read_text(encoding="utf-8"))["steps"]:
        name, settings = step.get("registry_name"), step.get("config") or {}
        if name not in _KNOWN_STEPS:
            raise ValueError(
                f"{file} has the step {name}, allowed: {', '.join(_KNOWN_STEPS)}; it would change "
                "inputs or actions"
            )
        for key, value in _KNOWN_STEPS[name].items():
            if settings.get(key, value) != value:
                raise ValueError(
                    f"{file}: {name} has {key} {settings[key]}, which cannot be had; allowed: "
                    f"{value}"
                )
