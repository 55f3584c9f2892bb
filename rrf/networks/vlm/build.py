"""Builds a backbone: random or pretrained weights, number format, and what of it is trained.

What a run does not train is not saved with its checkpoints either, if it came from published files:
a checkpoint then holds the digest of these files and is only loaded together with the same ones.
"""

import contextlib
import copy
import dataclasses
import json
import math
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import nn

from rrf import atomic
from rrf.networks.vlm.backbone import Backbone
from rrf.networks.vlm.catalogue import located
from rrf.networks.vlm.configs import BackboneCfg, LoRACfg
from rrf.networks.vlm.weights import ADAPTER, fill, plain_tensors, weights_digest

BASE = "base.json"  # in a checkpoint: which published weights it needs
Dtype = typing.Literal["fp32", "bf16"]
DTYPES: dict[Dtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
_MAX_DEVIATION = 0.5
_NUM_INPUTS = 16


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
    with _default_dtype(DTYPES[cfg.dtype]), _without_init(reads):
        backbone = cfg.build(assets=assets)
    if reads:
        assert cfg.weights is not None
        fill(backbone, cfg.weights, backbone.published_name, f"the {type(cfg).__name__}")
        _require_alike(backbone, cfg.weights)
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


def _require_alike(backbone: Backbone, weights: str) -> None:
    """Refuse published weights of a model that has their shapes, but is another one."""
    file = located(weights) / "config.json"
    if not file.is_file():
        return
    config = atomic.parse_json(file.read_text(encoding="utf-8"))
    for setting, (field, value) in backbone.unseen_settings().items():
        part: typing.Any = config
        for name in setting.split("."):
            is_flat = name == "text_config" and part is config and name not in config
            part = part if is_flat else part.get(name) if isinstance(part, dict) else None
        if part is not None and part != value:
            raise ValueError(
                f"{file} has {setting} {part}, but policy.backbone.{field} is {value}; set "
                f"policy.backbone.{field}={part}, or give the weights of another model"
            )


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


@dataclasses.dataclass
class Merge:
    """How far merged layers are from those with adapters, over all outputs for normal inputs."""

    change: float = 0.0  # root mean square of what the adapters change
    error: float = 0.0  # root mean square of what the merge changes beside that

    @property
    def deviation(self) -> float:
        """The error as a part of the change."""
        return self.error / self.change if self.change else 0.0


def merged_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """All weights of a module, those of the base included, with adapters merged into them.

    Weights that had adapters are float32: rounded to the bfloat16 of a base, they would lose most
    of a training.

    Raises:
        ValueError: If a merged layer does not do what the layer with adapters does.
    """
    weights = {name: value.clone() for name, value in plain_tensors(module).items()}
    layers = _adapted_layers(module)
    weights |= {f"{name}.weight": _merged_weight(layer) for name, layer in layers.items()}
    _checked((layer, weights[f"{name}.weight"]) for name, layer in layers.items())
    return weights


def merge_adapters(module: nn.Module, dtype: Dtype | None = None) -> Merge:
    """Replace layers with adapters by plain ones, in place.

    Args:
        module: What holds the layers.
        dtype: Number format of all parameters afterwards; None: float32 if there are adapters, else
            as they are.

    Raises:
        ValueError: If more than half of what the adapters change would be lost; nothing is replaced
            then.
    """
    layers = _adapted_layers(module)
    if dtype is None and layers:
        dtype = "fp32"
    wanted = DTYPES[dtype] if dtype else None
    pairs = [(layer, _merged_weight(layer).to(wanted)) for layer in layers.values()]
    merge = _checked(pairs)
    for name, (layer, weight) in zip(layers, pairs, strict=True):
        plain = layer.get_base_layer()
        plain.weight = nn.Parameter(weight)
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, plain)
    for parameter in module.parameters() if wanted else ():
        parameter.data = parameter.data.to(wanted)
    return merge


def _adapted_layers(module: nn.Module) -> dict[str, typing.Any]:
    if not has_adapters(module):
        return {}
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}


@torch.no_grad()
def _merged_weight(layer: typing.Any) -> torch.Tensor:
    """float32, computed in float32."""
    exact = copy.deepcopy(layer).float()
    return exact.get_base_layer().weight + exact.get_delta_weight("default")


def _checked(pairs: Iterable[tuple[typing.Any, torch.Tensor]]) -> Merge:
    """Compare outputs of merged layers with those of layers with adapters."""
    changes, errors, count = 0.0, 0.0, 0
    for layer, weight in pairs:
        adapted, base, merged = _outputs(layer, weight)
        changes += (adapted - base).square().sum().item()
        errors += (adapted - merged).square().sum().item()
        count += adapted.numel()
    merge = Merge(math.sqrt(changes / max(count, 1)), math.sqrt(errors / max(count, 1)))
    if merge.error > _MAX_DEVIATION * merge.change:
        raise ValueError(
            f"merged, the adapters would be lost: they change outputs by {merge.change:.2g}, and "
            f"the merge errs by {merge.error:.2g}; write float32 (--dtype fp32)"
        )
    return merge


@torch.no_grad()
def _outputs(
    layer: typing.Any, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Outputs of a layer with its adapters, without them, and with a merged weight instead."""
    exact = copy.deepcopy(layer).float().eval()
    base = exact.get_base_layer()
    shape = base.weight.shape[1:]  # of the inputs of a linear layer; of a convolution's window
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(_NUM_INPUTS, *shape, generator=generator).to(base.weight.device)
    adapted, plain = exact(inputs), base(inputs)
    base.weight = nn.Parameter(weight.float())
    return adapted, plain, base(inputs)


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
    for name, parameter in backbone.named_parameters():
        if ADAPTER in name:  # small steps would be rounded away in the bfloat16 of a base
            parameter.data = parameter.data.float()


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
