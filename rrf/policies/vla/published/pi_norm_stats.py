"""Normalisation and configs beside the weights of pi0 and pi0.5, as openpi and lerobot write them.

Our normalisation divides by exactly the statistic that it is given. openpi adds 1e-6 to the
standard deviation and to q99 before it divides; so does what `read` returns, and what is written
has less by that. lerobot adds its eps to the standard deviation, and to the upper end of a range
that is empty. A dimension that never changes is only shifted by us; it is written with a spread of
1.
"""

import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from rrf import atomic
from rrf.data.dataset.action_representation import PREDICTED, Representation
from rrf.data.dataset.transforms import STATISTICS, Mode
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.networks.vlm.paligemma.configs import PaliGemmaCfg
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published import lerobot_pi
from rrf.policies.vla.published.folders import lerobot_statistics, require_written
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

Files = dict[str, str | dict[str, torch.Tensor]]
"""Name -> text, or tensors of a safetensors file."""

_EPS = 1e-6  # openpi's
_LEROBOT_EPS = 1e-8
_OPENPI_NAMES = {STATE: "state", ACTION: "actions"}
OPENPI_MODES: dict[str, Mode] = {"pi0": "mean_std", "pi05": "quantile"}
_LEROBOT_MODES = {mode: name for name, mode in lerobot_pi.MODES.items()}
_PREPROCESSOR, _POSTPROCESSOR = lerobot_pi.BEFORE, lerobot_pi.AFTER
_TOKENIZER = "google/paligemma-3b-pt-224"
_NEUTRAL = {"mean": 0.0, "std": 1.0, "min": -1.0, "max": 1.0, "q01": -1.0, "q99": 1.0}


def read(
    folder: str | Path, state_dim: int, action_dim: int, unused: Sequence[str] = ()
) -> dict[str, dict[str, list[float]]]:
    """The statistics of a published checkpoint in the form of our norm_stats.json.

    Args:
        folder: The checkpoint: openpi's with assets/NAME/norm_stats.json, or lerobot's with
            policy_preprocessor files.
        state_dim: Dimensions of the robot's state. Statistics of padded dimensions are left out.
        action_dim: Dimensions of its action.
        unused: What is not normalised, so that its statistics may lack.

    Raises:
        ValueError: If there are no statistics, several sets, or some for fewer dimensions.
    """
    folder = Path(folder)
    file = statistics_file(folder)
    dims = {STATE: state_dim, ACTION: action_dim}
    neutral = {
        name: {key: [value] * dims[name] for key, value in _NEUTRAL.items()} for name in unused
    }
    if file is None and set(neutral) == set(dims):
        return neutral
    if file is None:
        candidates = (
            ", ".join(str(file.relative_to(folder)) for file in _candidates(folder)) or "none"
        )
        raise ValueError(
            f"{folder} must have one file of statistics, assets/NAME/norm_stats.json (openpi) or "
            f"{_PREPROCESSOR}_step_N_normalizer_processor.safetensors (lerobot), found: "
            f"{candidates}"
        )
    stats = neutral | read_file(file)
    for name, num in dims.items():
        if name not in stats:
            raise ValueError(f"{file} has no statistics of {name}")
        for statistic, values in stats[name].items():
            if len(values) < num:
                raise ValueError(
                    f"{statistic} of {name} has {len(values)} dimensions in {file}, but the robot "
                    f"has {num}"
                )
    return {
        name: {statistic: values[: dims[name]] for statistic, values in stats[name].items()}
        for name in dims
    }


def as_predicted(
    stats: dict[str, dict[str, list[float]]], representation: Representation
) -> dict[str, dict[str, list[float]]]:
    """Statistics in which those of the action are of what the policy predicts.

    Those of the actions themselves, which no file has, are estimated as those of a sum: reports
    measure errors by them, the policy does not use them.
    """
    if representation.is_absolute:
        return stats
    absolute = {name: list(values) for name, values in stats[ACTION].items()}
    for action, of in representation.relative:
        for name, values in absolute.items():
            state = stats[STATE][name][of] if name in stats[STATE] else 0.0
            both = (values[action], state)
            values[action] = float(np.hypot(*both)) if name == "std" else sum(both)
    return {**stats, ACTION: absolute, PREDICTED: stats[ACTION]}


def statistics_file(folder: Path) -> Path | None:
    """The file with the statistics of a checkpoint; None if there is none, or several."""
    candidates = _candidates(folder)
    return candidates[0] if len(candidates) == 1 else None


def read_file(file: Path) -> dict[str, dict[str, list[float]]]:
    """The statistics in such a file, of all dimensions that it has."""
    return _read_openpi(file) if file.suffix == ".json" else _read_lerobot(file)


def openpi_files(cfg: VLMPolicyCfg, norm_stats: Mapping[str, Mapping]) -> Files:
    """What stands beside openpi's weights.

    Raises:
        ValueError: If normalisation or prompt are not what openpi has for this model.
    """
    head = typing.cast(PiExpertHeadCfg, cfg.head)
    mode = OPENPI_MODES[head.version]
    for name in ("state_normalization", "action_normalization"):
        if getattr(cfg, name) != mode:
            raise ValueError(
                f"{name} is {getattr(cfg, name)}, but openpi's {head.version} has {mode}; write "
                "the layout of lerobot, or train with this normalisation"
            )
    _require_expressible(cfg, "openpi")
    periods = {"min_period": 4e-3, "max_period": 4.0}  # openpi's, which no setting changes
    for name, period in periods.items():
        if getattr(head, name) != period:
            raise ValueError(
                f"policy.head.{name} is {getattr(head, name)}, but openpi's is always {period}; "
                "write the layout of lerobot"
            )
    written = {
        openpi_name: _openpi_statistics(norm_stats[name])
        for name, openpi_name in _OPENPI_NAMES.items()
    }
    config = {
        "action_dim": head.max_dims,
        "action_horizon": cfg.chunk_length,
        "pi05": head.version == "pi05",
        "max_token_len": typing.cast(PaliGemmaCfg, cfg.backbone).max_tokens,
        **_variants(cfg),
    }
    return {
        "assets/rrf/norm_stats.json": json.dumps({"norm_stats": written}, indent=2),
        "config.json": json.dumps(config, indent=2),
    }


def lerobot_files(cfg: VLMPolicyCfg, norm_stats: Mapping[str, Mapping]) -> Files:
    """What stands beside lerobot's weights: the policy's config, and both processors.

    Raises:
        ValueError: If the prompt of pi0.5 is not what lerobot would make of the state.
    """
    _require_expressible(cfg, "lerobot")
    modes: dict[str, Mode] = {STATE: cfg.state_normalization, ACTION: cfg.action_normalization}
    sources = {STATE: STATE, ACTION: PREDICTED if cfg.relative_actions else ACTION}
    tensors = {
        f"{name}.{statistic}": torch.tensor(values, dtype=torch.float32)
        for name, mode in modes.items()
        for statistic, values in _spread(norm_stats[sources[name]], mode).items()
    }
    normalizer = f"{_PREPROCESSOR}_step_{_normalizer_place(cfg)}_normalizer_processor.safetensors"
    unnormalizer = f"{_POSTPROCESSOR}_step_0_unnormalizer_processor.safetensors"
    return {
        "config.json": json.dumps(_lerobot_config(cfg), indent=2),
        f"{_PREPROCESSOR}.json": json.dumps(_preprocessor(cfg, normalizer), indent=2),
        f"{_POSTPROCESSOR}.json": json.dumps(_postprocessor(cfg, unnormalizer), indent=2),
        normalizer: tensors,
        unnormalizer: tensors,
    }


def _candidates(folder: Path) -> list[Path]:
    return [
        *sorted(folder.glob("assets/**/norm_stats.json")),
        *sorted(folder.glob(f"{_PREPROCESSOR}_step_*_normalizer_processor.safetensors")),
    ]


def _require_expressible(cfg: VLMPolicyCfg, layout: str) -> None:
    """Refuse what a layout has no place for, so that others would run another policy.

    Raises:
        ValueError: Naming the field.
    """
    head = typing.cast(PiExpertHeadCfg, cfg.head)
    if cfg.prompt != lerobot_pi.PROMPTS[head.version]:
        raise ValueError(
            f"prompt is {cfg.prompt!r}, but programs that read the layout of {layout} write "
            f"{lerobot_pi.PROMPTS[head.version]!r} for {head.version}; train with this prompt"
        )
    require_written(cfg, layout, ["relative_actions"] if layout == "lerobot" else [])
    strange = [pair for pair in cfg.relative_actions if pair[0] != pair[1]]
    if strange:
        raise ValueError(
            f"action dimension {strange[0][0]} is relative to state dimension {strange[0][1]}, but "
            f"in the layout of {layout} it is always relative to the same one"
        )
    _check_prompt_state(cfg)


def _check_prompt_state(cfg: VLMPolicyCfg) -> None:
    if "{state}" in cfg.prompt and cfg.prompt_state_dims:
        raise ValueError(
            f"prompt_state_dims is {cfg.prompt_state_dims}, but programs that read this layout "
            "write no padding of the state into the prompt (lerobot did before 0.5); train with "
            "policy.prompt_state_dims=0"
        )


def _read_openpi(file: Path) -> dict[str, dict[str, list[float]]]:
    content = atomic.parse_json(file.read_text(encoding="utf-8"))
    content = content.get("norm_stats", content)
    statistics = {}
    for feature, openpi_name in _OPENPI_NAMES.items():
        stats = {name: values for name, values in content.get(openpi_name, {}).items() if values}
        if not stats:
            raise ValueError(f"{file} has no statistics of {openpi_name}")
        for name in ("std", "q99"):
            if name in stats:
                stats[name] = [value + _EPS for value in stats[name]]
        statistics[feature] = stats
    return statistics


def _read_lerobot(file: Path) -> dict[str, dict[str, list[float]]]:
    statistics = lerobot_statistics(file)
    normalizer = _settings(file.parent / f"{_PREPROCESSOR}.json", "normalizer_processor")
    eps = normalizer.get("eps", _LEROBOT_EPS)
    unnormalizer = lerobot_statistics(after) if (after := _statistics_after(file.parent)) else {}
    if ACTION in unnormalizer and unnormalizer[ACTION] != statistics.get(ACTION):
        raise ValueError(
            f"the statistics of {ACTION} in {file} and {after} differ, so chunks would come out in "
            "other units than those of training"
        )
    return {
        name: _as_lerobot_divides(statistics[name], eps)
        for name in (STATE, ACTION)
        if name in statistics
    }


def _as_lerobot_divides(stats: Mapping[str, list[float]], eps: float) -> dict[str, list[float]]:
    divided = {name: list(values) for name, values in stats.items()}
    if "std" in divided:
        divided["std"] = [value + eps for value in divided["std"]]
    for low, high in (STATISTICS["min_max"], STATISTICS["quantile"]):
        if low in divided and high in divided:
            pairs = zip(divided[low], divided[high], strict=True)
            divided[high] = [b + eps * (a == b) for a, b in pairs]
    return divided


def _statistics_after(folder: Path) -> Path | None:
    files = sorted(folder.glob(f"{_POSTPROCESSOR}_step_*_unnormalizer_processor.safetensors"))
    return files[0] if files else None


def _settings(file: Path, name: str) -> dict[str, typing.Any]:
    """The settings of a step of a processor; none, if there is no such file or step."""
    if not file.is_file():
        return {}
    steps = atomic.parse_json(file.read_text(encoding="utf-8"))["steps"]
    return next((step.get("config") or {} for step in steps if step["registry_name"] == name), {})


def _openpi_statistics(stats: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    # openpi's files have both pairs, whichever of them is used.
    converted: dict[str, list[float]] = {}
    modes: tuple[Mode, ...] = ("mean_std", "quantile")
    for mode in modes:
        low, high = STATISTICS[mode]
        if low in stats and high in stats:
            spread = _spread(stats, mode)
            converted |= {low: spread[low], high: [value - _EPS for value in spread[high]]}
    return converted


def _spread(stats: Mapping[str, Sequence[float]], mode: Mode) -> dict[str, list[float]]:
    """The two statistics of a mode; a dimension that never changes gets a spread of 1."""
    low, high = STATISTICS[mode]
    first, second = np.asarray(stats[low], np.float64), np.asarray(stats[high], np.float64)
    if mode == "mean_std":
        return {low: first.tolist(), high: np.where(second > 0, second, 1.0).tolist()}
    is_fixed = second <= first
    middle = (first + second) / 2
    first = np.where(is_fixed, middle - 1, first)
    return {low: first.tolist(), high: np.where(is_fixed, middle + 1, second).tolist()}


def _features(cfg: VLMPolicyCfg) -> tuple[dict, dict]:
    """lerobot's input and output features."""
    images = {
        f"{IMAGE_PREFIX}{name}": {"type": "VISUAL", "shape": [3, *cfg.image_size]}
        for name in cfg.cameras
    }
    state = {STATE: {"type": "STATE", "shape": [cfg.state_dim]}}
    return {**images, **state}, {ACTION: {"type": "ACTION", "shape": [cfg.action_dim]}}


def _modes(cfg: VLMPolicyCfg) -> dict[str, str]:
    return {
        "VISUAL": "IDENTITY",
        "STATE": _LEROBOT_MODES[cfg.state_normalization],
        "ACTION": _LEROBOT_MODES[cfg.action_normalization],
    }


def _lerobot_config(cfg: VLMPolicyCfg) -> dict:
    head = typing.cast(PiExpertHeadCfg, cfg.head)
    inputs, outputs = _features(cfg)
    return {
        "type": head.version,
        "input_features": inputs,
        "output_features": outputs,
        "normalization_mapping": _modes(cfg),
        "chunk_size": cfg.chunk_length,
        "n_action_steps": cfg.chunk_length,
        "max_state_dim": head.max_dims,
        "max_action_dim": head.max_dims,
        "num_inference_steps": head.num_denoise_steps,
        "image_resolution": list(cfg.backbone.image.size),
        "tokenizer_max_length": typing.cast(PaliGemmaCfg, cfg.backbone).max_tokens,
        "min_period": head.min_period,
        "max_period": head.max_period,
        **_relative(cfg),
        **_variants(cfg),
        "dtype": "bfloat16" if head.dtype == "bf16" else "float32",
        "device": "cpu",
    }


def _variants(cfg: VLMPolicyCfg) -> dict[str, str]:
    """The names of the sizes of language model and expert, where they have one."""
    head = typing.cast(PiExpertHeadCfg, cfg.head)
    gemma = typing.cast(PaliGemmaCfg, cfg.backbone).gemma
    expert = gemma.replace(width=head.width, mlp_dim=head.mlp_dim, num_heads=head.num_heads)
    sizes = {"paligemma_variant": gemma, "action_expert_variant": expert}
    names = [(name, known) for name in sizes for known in lerobot_pi.VARIANTS]
    return {name: known for name, known in names if sizes[name] == lerobot_pi.VARIANTS[known]}


def _relative(cfg: VLMPolicyCfg) -> dict[str, typing.Any]:
    """lerobot's settings for relative actions. It leaves out dimensions by words in their names, so
    they get names for it."""
    relative = {action for action, _ in cfg.relative_actions}
    names = [f"{'relative' if at in relative else 'absolute'}_{at}" for at in range(cfg.action_dim)]
    return {
        "use_relative_actions": bool(relative),
        "relative_exclude_joints": ["absolute_"],
        "action_feature_names": names if relative else None,
    }


def _normalizer_place(cfg: VLMPolicyCfg) -> int:
    # pi0.5 reads the normalised state in its prompt, so there the normaliser comes early.
    return 3 if typing.cast(PiExpertHeadCfg, cfg.head).version == "pi05" else 6


def _preprocessor(cfg: VLMPolicyCfg, state_file: str) -> dict:
    inputs, outputs = _features(cfg)
    head = typing.cast(PiExpertHeadCfg, cfg.head)
    normalizer = {
        "registry_name": "normalizer_processor",
        "config": {"eps": 1e-8, "features": {**inputs, **outputs}, "norm_map": _modes(cfg)},
        "state_file": state_file,
    }
    tokenizer = {
        "max_length": typing.cast(PaliGemmaCfg, cfg.backbone).max_tokens,
        "task_key": "task",
        "padding_side": "right",
        "padding": "max_length",
        "truncation": True,
        "tokenizer_name": _TOKENIZER,
    }
    steps = [
        _step("rename_observations_processor", {"rename_map": {}}),
        _step("to_batch_processor", {}),
    ]
    last = [
        _step("tokenizer_processor", tokenizer),
        _step("device_processor", {"device": "cpu", "float_dtype": None}),
    ]
    settings = _relative(cfg)
    relative = _step(
        "relative_actions_processor",
        {
            "enabled": settings["use_relative_actions"],
            "exclude_joints": settings["relative_exclude_joints"],
            "action_names": settings["action_feature_names"],
        },
    )
    if head.version == "pi05":
        prompt = _step("pi05_prepare_state_tokenizer_processor_step", {})
        steps += [relative, normalizer, prompt, *last]
    else:
        steps += [_step("pi0_new_line_processor", {}), *last, relative, normalizer]
    return {"name": _PREPROCESSOR, "steps": steps}


def _postprocessor(cfg: VLMPolicyCfg, state_file: str) -> dict:
    unnormalizer = {
        "registry_name": "unnormalizer_processor",
        "config": {"eps": 1e-8, "features": _features(cfg)[1], "norm_map": _modes(cfg)},
        "state_file": state_file,
    }
    device = _step("device_processor", {"device": "cpu", "float_dtype": None})
    absolute = _step("absolute_actions_processor", {"enabled": bool(cfg.relative_actions)})
    return {"name": _POSTPROCESSOR, "steps": [unnormalizer, absolute, device]}


def _step(name: str, config: dict) -> dict:
    return {"registry_name": name, "config": config}
