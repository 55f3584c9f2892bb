"""Builds lerobot's configs, policies and processors. The only place that imports lerobot's classes.

Images are normalised as lerobot's training does by default: where a policy normalises them by mean
and standard deviation, those of ImageNet are used, not the dataset's. Statistics of a camera in
`norm_stats`, as a checkpoint of lerobot's may bring, take precedence.
"""

import contextlib
import dataclasses
import importlib
import sys
import typing
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.processor import DeviceProcessorStep, PolicyProcessorPipeline

from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.policies.vla.lerobot.configs import DEFAULTS, LENGTHS, LerobotPolicyCfg

_CLASSES = {"act": "ACT", "diffusion": "Diffusion", "vqbet": "VQBeT", "smolvla": "SmolVLA"}
_IMAGENET = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "min": [0.0, 0.0, 0.0],
    "max": [1.0, 1.0, 1.0],
}


def lerobot_class(kind: str, what: typing.Literal["Config", "Policy"]) -> typing.Any:
    """lerobot's class of a kind of policy, or of its config."""
    module = "configuration" if what == "Config" else "modeling"
    found = importlib.import_module(f"lerobot.policies.{kind}.{module}_{kind}")
    return getattr(found, _CLASSES[kind] + what)


def build_config(cfg: LerobotPolicyCfg, changes: Mapping | None = None) -> PreTrainedConfig:
    """lerobot's own config.

    Args:
        cfg: Our config, with all dimensions known.
        changes: Fields of lerobot's config that are set last.

    Raises:
        ValueError: For values that lerobot refuses.
    """
    owner = lerobot_class(cfg.kind, "Config")
    predicted, executed = LENGTHS[cfg.kind]
    values = {**DEFAULTS[cfg.kind], **_typed(owner, cfg.options)}
    values |= {predicted: cfg.predicted_length}
    if executed:
        values |= {executed: cfg.chunk_length}
    height, width = cfg.image_size
    inputs = {STATE: PolicyFeature(FeatureType.STATE, (cfg.state_dim,))}
    for name in cfg.cameras:
        inputs[IMAGE_PREFIX + name] = PolicyFeature(FeatureType.VISUAL, (3, height, width))
    outputs = {ACTION: PolicyFeature(FeatureType.ACTION, (cfg.action_dim,))}
    values |= {"input_features": inputs, "output_features": outputs, "device": "cpu"}
    with _in_our_words(cfg.kind):
        config = owner(**{**values, **(changes or {})})
        config.validate_features()
    return config


def build_policy(config: PreTrainedConfig) -> PreTrainedPolicy:
    """lerobot's policy with random weights, or those that its config names.

    Raises:
        ValueError: For values that lerobot refuses.
    """
    with _in_our_words(config.type), contextlib.redirect_stdout(sys.stderr):  # SmolVLA prints
        policy = lerobot_class(config.type, "Policy")(config)
    if config.type == "smolvla":
        _untie(policy.model.vlm_with_expert.vlm)
    return policy


def build_processors(
    config: PreTrainedConfig, norm_stats: Mapping[str, Mapping]
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """lerobot's processors before and after a policy, which normalise by our statistics."""
    module = importlib.import_module(f"lerobot.policies.{config.type}.processor_{config.type}")
    make = getattr(module, f"make_{config.type}_pre_post_processors")
    return make(config, dataset_stats=lerobot_stats(config, norm_stats))


def lerobot_stats(
    config: PreTrainedConfig, norm_stats: Mapping[str, Mapping]
) -> dict[str, dict[str, np.ndarray]]:
    """The content of our norm_stats.json in lerobot's form, with statistics of all cameras."""
    found = {key: _arrays(norm_stats[key]) for key in (STATE, ACTION)}
    for key in config.image_features:
        of_camera = _arrays(norm_stats.get(key, _IMAGENET))
        found[key] = {name: values.reshape(3, 1, 1) for name, values in of_camera.items()}
    return found


def move(pipeline: PolicyProcessorPipeline, device: torch.device) -> None:
    """Let a pipeline put tensors on a device; what normalises follows by itself."""
    pipeline.steps = [
        DeviceProcessorStep(device=str(device)) if isinstance(step, DeviceProcessorStep) else step
        for step in pipeline.steps
    ]


@contextlib.contextmanager
def _in_our_words(kind: str) -> Iterator[None]:
    """Turn what lerobot and torchvision raise about settings into one kind of error."""
    try:
        yield
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(f"lerobot refuses these settings of {kind}: {error}") from error


def _arrays(stats: Mapping) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(values, np.float32)
        for name, values in stats.items()
        if name not in ("count", "mask")
    }


def _typed(owner: type, options: Mapping) -> dict[str, typing.Any]:
    """Options read from YAML in the types that lerobot's config has: tuples, and named modes."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(owner)}
    found: dict[str, typing.Any] = {
        name: tuple(value) if isinstance(value, list) and "tuple" in kinds[name] else value
        for name, value in options.items()
    }
    if "normalization_mapping" in found:
        found["normalization_mapping"] = {
            name: NormalizationMode(mode) for name, mode in found["normalization_mapping"].items()
        }
    return found


def _untie(vlm: typing.Any) -> None:
    """Give the output layer, which SmolVLA does not use, its own weights: a safetensors file cannot
    hold one tensor under two names."""
    table = vlm.get_input_embeddings().weight
    if vlm.lm_head.weight is table:
        vlm.lm_head.weight = torch.nn.Parameter(table.detach().clone(), requires_grad=False)
