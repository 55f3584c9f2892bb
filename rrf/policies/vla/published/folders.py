"""Folders of published policies: what every layout does with them."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from rrf import atomic
from rrf.networks.vlm.tokenizer import FILE
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

_STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")


def require_vacant(folder: Path) -> None:
    """Raise ValueError if there is something in a folder that is to be written."""
    if not atomic.is_vacant(folder):
        raise ValueError(f"{folder} is not empty; give a directory that does not exist")


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
