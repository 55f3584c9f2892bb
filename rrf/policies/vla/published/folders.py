"""Folders of published policies: what every layout does with them."""

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from rrf import atomic
from rrf.networks.vlm.tokenizer import FILE
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

_WITHOUT_PLACE = {
    "relative_actions": "[]",
    "delta_actions": "[]",
    "state_modes": "{}",
    "action_modes": "{}",
}
_STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")


def require_vacant(folder: Path) -> None:
    """Raise ValueError if there is something in a folder that is to be written."""
    if not atomic.is_vacant(folder):
        raise ValueError(f"{folder} is not empty; give a directory that does not exist")


def require_written(cfg: VLMPolicyCfg, layout: str, kept: Collection[str] = ()) -> None:
    """Refuse a policy with a setting that a layout has no place for: others would run another one.

    Args:
        cfg: The policy.
        layout: The name of the layout.
        kept: The settings among those in question that it has a place for.

    Raises:
        ValueError: Naming the field, and what to train with.
    """
    for name, plain in _WITHOUT_PLACE.items():
        if name not in kept and (value := getattr(cfg, name)):
            elsewhere = ", or write the layout of lerobot" if layout == "openpi" else ""
            raise ValueError(
                f"the policy has {name} {value}, for which the layout of {layout} has no place; "
                f"train with policy.{name}={plain}"
                + (elsewhere if name == "relative_actions" else "")
            )


def with_tokenizer(cfg: VLMPolicyCfg, folder: Path) -> VLMPolicyCfg:
    """`cfg` with the folder's tokenizer, if it has one and the policy's is not one of words."""
    tokenizer = cfg.backbone.tokenizer
    if tokenizer.words or not (folder / FILE).is_file():
        return cfg
    return cfg.replace(
        backbone=cfg.backbone.replace(tokenizer=tokenizer.replace(files=str(folder)))
    )


def tensors_in(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises ValueError if it is missing or damaged."""
    if not file.is_file():
        raise ValueError(f"{file} is missing; only safetensors files are read")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is not a complete safetensors file ({error})") from error


def lerobot_statistics(file: Path) -> dict[str, dict[str, list[float]]]:
    """The statistics in the file of a normaliser of lerobot: feature -> statistic -> values."""
    statistics: dict[str, dict[str, list[float]]] = {}
    for key, tensor in tensors_in(file).items():
        feature, _, statistic = key.rpartition(".")
        if statistic in _STATISTICS:
            statistics.setdefault(feature, {})[statistic] = tensor.double().flatten().tolist()
    return statistics
