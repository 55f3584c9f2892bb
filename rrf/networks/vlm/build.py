"""Builds a backbone: random or pretrained weights, number format, and what of it is trained.

What a run does not train is not saved with its checkpoints either, if it came from published files:
a checkpoint then holds the digest of these files and is only loaded together with the same ones.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from rrf import atomic
from rrf.networks.vlm.backbone import Backbone
from rrf.networks.vlm.configs import BackboneCfg, LoRACfg
from rrf.networks.vlm.weights import ADAPTER, fill, plain_tensors, weights_digest

BASE = "base.json"  # in a checkpoint: which published weights it needs
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def build_backbone(cfg: BackboneCfg, assets: Path | None = None) -> Backbone:
    """The backbone of a config.

    Args:
        cfg: Its config.
        assets: A checkpoint directory with the files of `Backbone.assets`; None for a new training.

    Raises:
        ValueError: If weights or tokenizer are missing or do not fit, or if the weights are not
            those with which the checkpoint was trained.
    """
    is_partial = cfg.tuning != "full" and cfg.weights is not None
    # A whole checkpoint brings all weights with it, so the published ones are not read again.
    reads = cfg.weights is not None and (assets is None or is_partial)
    with _default_dtype(_DTYPES[cfg.dtype]), _without_init(reads):
        backbone = cfg.build(assets=assets)
    if reads:
        assert cfg.weights is not None
        fill(backbone, cfg.weights, backbone.published_name, f"the {type(cfg).__name__}")
    if is_partial:
        assert cfg.weights is not None
        backbone.base_digest = weights_digest(cfg.weights)
        if assets is not None:
            _require_base(backbone.base_digest, assets, cfg.weights)
    if cfg.tuning != "full":
        backbone.requires_grad_(False)
    if isinstance(cfg.tuning, LoRACfg):
        _add_adapters(backbone, cfg.tuning)
    if is_partial:
        backbone.register_state_dict_post_hook(_drop_base)
        backbone.register_load_state_dict_post_hook(_expect_no_base)
    return backbone


def base_assets(backbone: Backbone) -> dict[str, str]:
    """The file that tells which published weights a checkpoint needs, if it does: name -> text."""
    if backbone.base_digest is None:
        return {}
    facts = {"weights": backbone.cfg.weights, "digest": backbone.base_digest}
    return {BASE: json.dumps(facts, indent=2) + "\n"}


def has_adapters(module: nn.Module) -> bool:
    """Whether a module holds adapters."""
    return any(ADAPTER in name for name, _ in module.named_parameters())


@contextlib.contextmanager
def without_adapters(module: nn.Module) -> Iterator[None]:
    """Switch all adapters within a module off, so that it is the model before fine-tuning."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [layer for layer in module.modules() if isinstance(layer, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """All weights of a module, those of the base included, with adapters merged into them."""
    from peft.tuners.lora import LoraLayer

    weights = {name: value.clone() for name, value in plain_tensors(module).items()}
    with torch.no_grad():
        for name, layer in module.named_modules():
            if isinstance(layer, LoraLayer):
                assert isinstance(layer, nn.Module)
                weights[f"{name}.weight"] += layer.get_delta_weight("default")  # type: ignore[operator]
    return weights


def _add_adapters(backbone: Backbone, cfg: LoRACfg) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    target = cfg.target or backbone.lora_target()
    config = LoraConfig(
        r=cfg.rank,
        lora_alpha=cfg.alpha,
        lora_dropout=cfg.dropout,
        target_modules=target,  # type: ignore[arg-type]
    )
    try:
        inject_adapter_in_model(config, backbone)
    except ValueError as error:
        linear = [n for n, m in backbone.named_modules() if isinstance(m, nn.Linear)]
        raise ValueError(
            f"no adapter can be added with target '{target}' ({error}); it must match full names "
            f"of linear layers such as {linear[0]}"
        ) from error


def _require_base(digest: str, assets: Path, weights: str) -> None:
    try:
        wanted = atomic.parse_json((assets / BASE).read_text())["digest"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{assets}/{BASE} is missing or damaged, so nothing says which base the adapters need"
        ) from error
    if digest != wanted:
        raise ValueError(
            f"{assets} was trained on other base weights than those at {weights}: their digest is "
            f"{digest[:12]}, needed is {wanted[:12]}; give the directory of the right ones as "
            "policy.backbone.weights"
        )


def _is_base(name: str) -> bool:
    return ADAPTER not in name


def _drop_base(backbone: nn.Module, state: dict, prefix: str, metadata: object) -> None:
    for name in [n for n in state if n.startswith(prefix) and _is_base(n)]:
        del state[name]


def _expect_no_base(backbone: nn.Module, incompatible: tuple[list[str], list[str]]) -> None:
    names = [n for n, _ in (*backbone.named_parameters(), *backbone.named_buffers()) if _is_base(n)]
    ends = tuple(f".{name}" for name in names)
    missing = incompatible[0]
    missing[:] = [name for name in missing if not f".{name}".endswith(ends)]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _without_init(skips: bool) -> Iterator[None]:
    if not skips:
        yield
        return
    from transformers.initialization import no_init_weights

    with no_init_weights():
        yield
