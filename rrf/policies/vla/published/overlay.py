"""RLinf's full_weights.pt on top of the published policy that it was trained from.

RLinf writes the state dict of its model: the tensors of the published policy under their names,
adapters beside the layers that they belong to, and parts of reinforcement learning that no
published policy has. Here it becomes one more safetensors file of a copy of the folder, whose other
files are links. What reads the folder then reads the newer tensors.
"""

import contextlib
import dataclasses
import json
import pickle
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rrf import atomic
from rrf.networks.tensor_files import differences, listed
from rrf.networks.vlm.weights import read_shapes, weight_files

FILE = "full_weights.pt"
_PLACES = ("", "model_state_dict", "actor/model_state_dict")
_INDEX = "model.safetensors.index.json"
_OVERLAY = "zz-overlay.safetensors"  # files are read in the order of their names, the last one wins
_OF_TRAINING = ("value_head", "noise_head", "q_head", "dsrl_")
_WRAPPERS = ("base_model.model.", "_orig_mod.", "module.")
_DOWN, _UP, _BASE = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer."
_TIED = ("lm_head.weight", "embed_tokens.weight")  # published files may have only one of them


def weights_file(path: Path) -> Path:
    """The file with the weights: itself, or in a checkpoint directory of RLinf (global_step_N).

    Raises:
        ValueError: If there is none.
    """
    if path.is_file():
        return path
    for place in _PLACES:
        if (file := path / place / FILE).is_file():
            return file
    places = ", ".join(str(Path(place) / FILE) for place in _PLACES)
    raise ValueError(
        f"{path} is neither a file nor a checkpoint of RLinf with its whole weights ({places}); "
        "RLinf writes them with actor.fsdp_config.save_full_model_weights"
    )


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, with adapters added to the weights that they belong to: W + B A, since
    RLinf's alpha is the rank.

    Raises:
        ValueError: If it holds anything but tensors by name. Nothing of it is run.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a file of torch.save, or it is truncated")
    try:
        data = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} holds more than tensors, so it is not read: {reason}") from error
    if not isinstance(data, dict) or not data:
        raise ValueError(f"{path} holds a {type(data).__name__}, expected tensors by name")
    strange = [name for name, value in data.items() if not isinstance(value, torch.Tensor)]
    if strange:
        raise ValueError(f"{path} holds {strange[0]}, which is no tensor")
    return _merged({_plain(str(name)): value for name, value in data.items()})


@dataclasses.dataclass(frozen=True)
class Overlay:
    """A published policy with newer weights."""

    folder: Path
    """Its files and the newer weights."""
    file: Path
    """Where those are from."""
    num_tensors: int
    left_out: list[str]
    """Tensors of the file that only training needs."""

    def facts(self) -> dict[str, str]:
        """For the lineage."""
        return {"overlay": self.file.name, "overlay_sha256": atomic.sha256(self.file)}


@contextlib.contextmanager
def overlaid(folder: Path, path: Path, scratch: Path) -> Iterator[Overlay]:
    """A published policy with newer weights, whose files are there for the block.

    Args:
        folder: The published policy.
        path: The file, or a checkpoint of RLinf.
        scratch: An existing directory on a disk with room for the weights.

    Raises:
        ValueError: If a tensor is not one of the published policy, or has another shape.
    """
    file = weights_file(path)
    tensors, shapes = read(file), read_shapes(folder)
    left_out = [n for n in tensors if n not in shapes and _is_of_training(n)]
    tied = [n for n in tensors if n not in shapes and n.endswith(_TIED)]
    newer = {n: t for n, t in tensors.items() if n not in (*left_out, *tied)}
    of_policy = {name: shapes[name] for name in newer if name in shapes}
    wrong = differences(of_policy, {name: tuple(t.shape) for name, t in newer.items()})
    if wrong or not newer:
        raise ValueError(
            f"the weights in {file} do not fit the policy in {folder}: "
            f"{listed(wrong) if wrong else 'it has none of its tensors'}"
        )
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".overlay-") as name:
        made = Path(name)
        for entry in folder.iterdir():
            if entry.name != _INDEX:
                (made / entry.name).symlink_to(entry.resolve())
        weight_map: dict[str, str] = {}
        for weights in weight_files(folder):
            with safe_open(weights, "pt") as shard:
                weight_map |= dict.fromkeys(shard.keys(), weights.name)
        weight_map |= dict.fromkeys(newer, _OVERLAY)
        save_file({n: t.contiguous() for n, t in newer.items()}, made / _OVERLAY)
        (made / _INDEX).write_text(json.dumps({"weight_map": weight_map}))
        yield Overlay(made, file, len(newer), left_out)


def _is_of_training(name: str) -> bool:
    return any(part.startswith(_OF_TRAINING) for part in name.split("."))


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _merged(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    result = {}
    for name, tensor in tensors.items():
        if ".lora_" in name:
            continue
        layer = name.replace(f"{_BASE}weight", "")
        down = tensors.get(layer + _DOWN) if name.endswith(f"{_BASE}weight") else None
        if down is not None:
            product = tensors[layer + _UP].float().flatten(1) @ down.float().flatten(1)
            tensor = (tensor.float() + product.view_as(tensor)).to(tensor.dtype)
        result[name.replace(_BASE, ".")] = tensor
    return result
