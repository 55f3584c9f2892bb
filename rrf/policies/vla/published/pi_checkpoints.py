"""Checkpoints of pi0 and pi0.5 as openpi's PyTorch port and lerobot write them.

Weights only change their names. lerobot puts "model." before openpi's names. Two tensors need care:

* the output layer of PaliGemma is its embedding table, and either name or both may be in a file;
* the action expert has an output layer that nothing uses. It is dropped when read; when written it
  is zeros, because openpi and lerobot refuse a file without it.

Only safetensors files are read, never a pickle.
"""

import typing
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from rrf import atomic
from rrf.networks.tensor_files import differences, listed
from rrf.networks.vlm.build import merged_weights
from rrf.networks.vlm.paligemma.configs import PaliGemmaCfg
from rrf.networks.vlm.weights import plain_tensors, weight_files
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.lerobot.fields import base_fields, config_fields
from rrf.policies.vla.published import pi_norm_stats
from rrf.policies.vla.published.folders import require_vacant
from rrf.policies.vla.vlm import VLMPolicy
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

Layout = typing.Literal["openpi", "lerobot"]

WEIGHTS = "model.safetensors"
_LEROBOT = "model."
_PALIGEMMA = "paligemma_with_expert.paligemma."
_EXPERT = "paligemma_with_expert.gemma_expert."
TIED = f"{_PALIGEMMA}lm_head.weight"
UNUSED = f"{_EXPERT}lm_head.weight"
_PREFIXES = {
    "backbone.vision.": f"{_PALIGEMMA}model.vision_tower.",
    "backbone.projector.": f"{_PALIGEMMA}model.multi_modal_projector.linear.",
    "backbone.embedding.": f"{_PALIGEMMA}model.language_model.embed_tokens.",
    "backbone.language.": f"{_PALIGEMMA}model.language_model.",
    "head.expert.": f"{_EXPERT}model.",
    "head.": "",
}
"""Start of our names -> start of openpi's. The first that fits holds, in both directions."""
_EMBEDDING = f"{_PALIGEMMA}model.language_model.embed_tokens.weight"
_OURS = ("state_encoder.", "trunk.", "value_head.", "head.explore_noise.")
"""Parts of a policy that no published checkpoint has: critic, and ReinFlow's noise."""
_HONOURED = (  # fields of lerobot 0.6.1's config.json that `formats.Pi` reads
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
_HARMLESS_PREFIXES = ("optimizer_", "scheduler_")
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


def our_name(name: str) -> str:
    """Our name of a tensor of openpi."""
    prefix, published_prefix = next(pair for pair in _PREFIXES.items() if name.startswith(pair[1]))
    return prefix + name.removeprefix(published_prefix)


def published_name(name: str) -> str:
    """openpi's name of a tensor of ours. Raises StopIteration if openpi has no such part."""
    prefix, published_prefix = next(pair for pair in _PREFIXES.items() if name.startswith(pair[0]))
    return published_prefix + name.removeprefix(prefix)


def renamed(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of openpi or lerobot under our names.

    Raises:
        ValueError: If embedding table and output layer differ.
    """
    is_lerobot = all(name.startswith(_LEROBOT) for name in weights)
    tensors = {n.removeprefix(_LEROBOT) if is_lerobot else n: t for n, t in weights.items()}
    tensors.pop(UNUSED, None)
    tied = tensors.pop(TIED, None)
    if tied is not None and not torch.equal(tensors.setdefault(_EMBEDDING, tied), tied):
        raise ValueError(
            f"{TIED} and {_EMBEDDING} differ, but the model uses one table for both; the file is "
            "of another model"
        )
    return {our_name(name): tensor for name, tensor in tensors.items()}


def fill(policy: VLMPolicy, folder: str | Path) -> None:
    """Copy the weights of a published checkpoint into a policy of the same architecture.

    Raises:
        ValueError: If there is no safetensors file, or if names or shapes do not agree exactly. The
            message lists what is missing and what is unexpected.
    """
    _require_pi(policy.cfg)
    weights: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        weights |= load_file(file)
    published = renamed(weights)
    tensors = plain_tensors(policy)
    needed = {
        name: tensors[name] for name in tensors if name in published or not name.startswith(_OURS)
    }
    wrong = differences(
        *(
            {published_name(n): tuple(t.shape) for n, t in part.items()}
            for part in (needed, published)
        ),
        missing="missing {}",
        unexpected="unexpected {}",
    )
    if wrong:
        raise ValueError(
            f"{folder} does not have the architecture of the configured policy: {listed(wrong)}"
        )
    for name, tensor in published.items():
        tensors[name].copy_(tensor)


def write(
    policy: VLMPolicy, norm_stats: Mapping[str, Mapping], folder: str | Path, layout: Layout
) -> Path:
    """Write weights, normalisation and what else the layout needs to `folder`, which must not exist
    or be empty.

    Adapters are merged into the weights. A critic and ReinFlow's noise are left out, because the
    layouts have no place for them.

    Raises:
        ValueError: If the policy is no pi0 or pi0.5, if the layout does not know its normalisation,
            or if the folder has content.
    """
    cfg, folder = policy.cfg, Path(folder)
    _require_pi(cfg)
    texts = pi_norm_stats.openpi_files if layout == "openpi" else pi_norm_stats.lerobot_files
    files = texts(cfg, norm_stats)
    require_vacant(folder)
    start = _LEROBOT if layout == "lerobot" else ""
    tensors = {
        published_name(name): tensor.detach().cpu().contiguous()
        for name, tensor in merged_weights(policy).items()
        if not name.startswith(_OURS)
    }
    table = tensors[_EMBEDDING]
    tensors[TIED] = table.clone()  # a file may not hold one tensor under two names
    width = typing.cast(PiExpertHeadCfg, cfg.head).width
    tensors[UNUSED] = table.new_zeros(len(table), width)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({start + name: tensor for name, tensor in tensors.items()}, folder / WEIGHTS)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (folder / name).write_text(content, encoding="utf-8")
        else:
            save_file(content, folder / name)
    return folder


def _require_pi(cfg: VLMPolicyCfg) -> None:
    if not isinstance(cfg.backbone, PaliGemmaCfg) or not isinstance(cfg.head, PiExpertHeadCfg):
        raise ValueError(
            f"the policy joins {type(cfg.backbone).__name__} and {type(cfg.head).__name__}, but "
            "openpi's and lerobot's layouts are for PaliGemmaCfg with PiExpertHeadCfg"
        )


def check_lerobot(folder: Path, config: Mapping[str, typing.Any]) -> None:
    """Refuse what lerobot wrote beside the weights that would change actions unnoticed.

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
        if not is_handled and not name.startswith(_HARMLESS_PREFIXES):
            raise ValueError(f"{file} has the setting {name}, which is not handled yet")
    for name in ("policy_preprocessor", "policy_postprocessor"):
        _check_steps(folder / f"{name}.json")


def is_empty_camera(name: str) -> bool:
    """Whether a camera is one of those that lerobot adds and masks out."""
    return name.startswith("empty_camera_")


def _check_steps(file: Path) -> None:
    if not file.is_file():
        return
    for step in atomic.parse_json(file.read_text(encoding="utf-8"))["steps"]:
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
