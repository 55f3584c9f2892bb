"""Normalisation and configs beside the weights of pi0 and pi0.5, as openpi and lerobot write them.

Our normalisation divides by exactly the statistic that it is given. openpi adds 1e-6 to the
standard deviation and to q99 before it divides; so does what `read` returns, and what is written
has less by that. A dimension that never changes is only shifted by us; it is written with a spread
of 1.
"""

import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from rrf import atomic
from rrf.data.dataset.transforms import STATISTICS, Mode
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.networks.vlm.paligemma.configs import PaliGemmaCfg
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published.folders import lerobot_statistics
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

Files = dict[str, str | dict[str, torch.Tensor]]
"""Name -> text, or tensors of a safetensors file."""

_EPS = 1e-6  # openpi's
_OPENPI_NAMES = {STATE: "state", ACTION: "actions"}
_OPENPI_MODES = {"pi0": "mean_std", "pi05": "quantile"}
LEROBOT_MODES = {"mean_std": "MEAN_STD", "min_max": "MIN_MAX", "quantile": "QUANTILES"}
_PREPROCESSOR, _POSTPROCESSOR = "policy_preprocessor", "policy_postprocessor"
_TOKENIZER = "google/paligemma-3b-pt-224"


def read(folder: str | Path, state_dim: int, action_dim: int) -> dict[str, dict[str, list[float]]]:
    """The statistics of a published checkpoint in the form of our norm_stats.json.

    Args:
        folder: The checkpoint: openpi's with assets/NAME/norm_stats.json, or lerobot's with
            policy_preprocessor files.
        state_dim: Dimensions of the robot's state. Statistics of padded dimensions are left out.
        action_dim: Dimensions of its action.

    Raises:
        ValueError: If there are no statistics, several sets, or some for fewer dimensions.
    """
    folder = Path(folder)
    file = statistics_file(folder)
    if file is None:
        candidates = (
            ", ".join(str(file.relative_to(folder)) for file in _candidates(folder)) or "none"
        )
        raise ValueError(
            f"{folder} must have one file of statistics, assets/NAME/norm_stats.json (openpi) or "
            f"{_PREPROCESSOR}_step_N_normalizer_processor.safetensors (lerobot), found: "
            f"{candidates}"
        )
    stats = read_file(file)
    for name, dims in ((STATE, state_dim), (ACTION, action_dim)):
        if name not in stats:
            raise ValueError(f"{file} has no statistics of {name}")
        for statistic, values in stats[name].items():
            if len(values) < dims:
                raise ValueError(
                    f"{statistic} of {name} has {len(values)} dimensions in {file}, but the robot "
                    f"has {dims}"
                )
    dims = {STATE: state_dim, ACTION: action_dim}
    return {
        name: {statistic: values[: dims[name]] for statistic, values in stats[name].items()}
        for name in dims
    }


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
    mode = _OPENPI_MODES[head.version]
    for name in ("state_normalization", "action_normalization"):
        if getattr(cfg, name) != mode:
            raise ValueError(
                f"{name} is {getattr(cfg, name)}, but openpi's {head.version} has {mode}; write "
                "the layout of lerobot, or train with this normalisation"
            )
    _check_prompt_state(cfg)
    written = {
        openpi_name: _openpi_statistics(norm_stats[name])
        for name, openpi_name in _OPENPI_NAMES.items()
    }
    config = {
        "action_dim": head.max_dims,
        "action_horizon": cfg.chunk_length,
        "pi05": head.version == "pi05",
        "max_token_len": typing.cast(PaliGemmaCfg, cfg.backbone).max_tokens,
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
    _check_prompt_state(cfg)
    modes: dict[str, Mode] = {STATE: cfg.state_normalization, ACTION: cfg.action_normalization}
    tensors = {
        f"{name}.{statistic}": torch.tensor(values, dtype=torch.float32)
        for name, mode in modes.items()
        for statistic, values in _spread(norm_stats[name], mode).items()
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


def _check_prompt_state(cfg: VLMPolicyCfg) -> None:
    if "{state}" in cfg.prompt and cfg.prompt_state_dims:
        raise ValueError(
            f"prompt_state_dims is {cfg.prompt_state_dims}, but programs that read this layout "
            "write no padding of the state into the prompt (lerobot did before 0.6); train with "
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
    return {name: statistics[name] for name in (STATE, ACTION) if name in statistics}


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
        "STATE": LEROBOT_MODES[cfg.state_normalization],
        "ACTION": LEROBOT_MODES[cfg.action_normalization],
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
        "dtype": "bfloat16" if head.dtype == "bf16" else "float32",
        "device": "cpu",
    }


def _normalizer_place(cfg: VLMPolicyCfg) -> int:
    # pi0.5 reads the normalised state in its prompt, so there the normaliser comes early.
    return 2 if typing.cast(PiExpertHeadCfg, cfg.head).version == "pi05" else 5


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
    if head.version == "pi05":
        prompt = _step("pi05_prepare_state_tokenizer_processor_step", {})
        steps += [normalizer, prompt, *last]
    else:
        steps += [_step("pi0_new_line_processor", {}), *last, normalizer]
    return {"name": _PREPROCESSOR, "steps": steps}


def _postprocessor(cfg: VLMPolicyCfg, state_file: str) -> dict:
    unnormalizer = {
        "registry_name": "unnormalizer_processor",
        "config": {"eps": 1e-8, "features": _features(cfg)[1], "norm_map": _modes(cfg)},
        "state_file": state_file,
    }
    device = _step("device_processor", {"device": "cpu", "float_dtype": None})
    return {"name": _POSTPROCESSOR, "steps": [unnormalizer, device]}


def _step(name: str, config: dict) -> dict:
    return {"registry_name": name, "config": config}
