"""Where the weights of a policy lie: on one device, or, if none can hold them, on several.

`--device auto` fills GPU after GPU, then main memory, then files on a disk, by accelerate
(https://huggingface.co/docs/accelerate/usage_guides/big_modeling). The policy is built without
memory for its weights, and these are read tensor by tensor. Only transformer blocks are moved: each
computes on the device that holds it; a block in main memory or on the disk is brought to the first
GPU (without one: to main memory) while it computes. Everything else lies on that first device.
"""

import dataclasses
import re
import typing
import warnings
from collections.abc import Mapping
from pathlib import Path

from rrf.runners.checkpoints.checkpoint import (
    WEIGHTS,
    check_architecture,
    deployed_cfg,
    load_norm_stats,
    load_weights,
)
from rrf.runners.checkpoints.checkpoint import load_policy as load_on_one

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

AUTO = "auto"
Device = str | int  # "cpu", "disk", or the number of a GPU
_DISK, _CPU = "disk", "cpu"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|MB|KB|GiB|MiB|KiB|B)")
_UNITS = {"GB": 10**9, "MB": 10**6, "KB": 10**3, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}


@dataclasses.dataclass(frozen=True)
class Placement:
    """How weights are spread over devices."""

    max_memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """cpu, or the number of a GPU -> the most bytes for weights; a device that is not named gets
    what is free."""
    offload: Path | None = None
    """A directory for weights that fit nowhere else."""

    @property
    def processor(self) -> str:
        """The kind of processor that computes: cuda where there is one."""
        import torch

        return "cuda" if torch.cuda.is_available() else _CPU

    def __str__(self) -> str:
        return AUTO


def choose(device: str, max_memory: list[str], offload: Path | None) -> str | Placement:
    """What `--device`, `--max-memory DEVICE=SIZE` and `--offload` say.

    Raises:
        ValueError: For words of another form, or limits without `--device auto`.
    """
    if device != AUTO:
        if max_memory or offload:
            raise ValueError("--max-memory and --offload need --device auto")
        return device
    pairs = [word.partition("=") for word in max_memory]
    for name, equals, size in pairs:
        if not (name and equals and size):
            raise ValueError(
                f"--max-memory {name}{equals}{size}: expected DEVICE=SIZE, e.g. cpu=64GiB"
            )
    return Placement({name: _bytes(size) for name, _, size in pairs}, offload)


def load_policy(checkpoint: str | Path, device: str | Placement) -> "nn.Module":
    """The policy in a checkpoint, for inference, on a device or on those that have room for it.

    Raises:
        ValueError: Like `rrf.runners.checkpoints.checkpoint.load_policy`, and if the weights do not
            fit the devices, which says what is missing.
    """
    if isinstance(device, str):
        return load_on_one(checkpoint, device)
    from accelerate import init_empty_weights

    from rrf.networks import tensor_files
    from rrf.networks.vlm.build import BASE

    cfg, norm_stats, path = deployed_cfg(checkpoint), load_norm_stats(checkpoint), Path(checkpoint)
    if (path / BASE).is_file():  # adapters without their base: the two meet in main memory
        policy: typing.Any = cfg.rebuild(norm_stats, path)
        load_weights(policy, checkpoint)
        return _spread(policy, policy.blocks(), None, device).eval()
    with init_empty_weights(include_buffers=False):
        policy = cfg.rebuild(norm_stats, path)
    file = path / WEIGHTS
    check_architecture(policy, tensor_files.stored_shapes(file), str(checkpoint))
    index = tensor_files.index_of(file)
    return _spread(policy, policy.blocks(), index if index.is_file() else file, device).eval()


def _spread(
    policy: "nn.Module", blocks: "list[nn.Module]", weights: Path | None, placement: Placement
) -> "nn.Module":
    """Put the weights of `policy` where there is room; `weights` is their file or index, or None if
    the policy holds them already."""
    from accelerate import dispatch_model, load_checkpoint_and_dispatch
    from accelerate.utils import offload_state_dict

    device_map: typing.Any = _device_map(policy, blocks, placement)
    if placement.offload is not None:
        placement.offload.mkdir(parents=True, exist_ok=True)
    # A block may use the weights of its parts without calling them, so it is brought whole.
    whole = sorted({type(block).__name__ for block in blocks})
    with warnings.catch_warnings():  # that the map also names single parameters
        warnings.filterwarnings("ignore", "The following device_map keys")
        if weights is None:
            # A state dict of adapters lacks their base, so accelerate is told where all lie.
            if placement.offload is not None:
                offload_state_dict(placement.offload, _tensors_on(_DISK, policy, device_map))
            dispatch_model(
                policy,
                device_map,
                state_dict=_tensors_on(_CPU, policy, device_map),
                offload_dir=placement.offload,
                preload_module_classes=whole,
            )
        else:
            load_checkpoint_and_dispatch(
                policy,
                str(weights),
                device_map,
                strict=True,
                offload_folder=placement.offload,
                offload_state_dict=False,
                preload_module_classes=whole,
            )
    for block in blocks:
        # What a block hands on, e.g. keys and values, goes back to where its input came from.
        if hook := getattr(block, "_hf_hook", None):
            for part in getattr(hook, "hooks", [hook]):
                part.io_same_device = True
    return policy


def _device_map(
    policy: "nn.Module", blocks: "list[nn.Module]", placement: Placement
) -> dict[str, Device]:
    """accelerate's map: module or parameter -> GPU's number, "cpu" or "disk"."""
    free = _free_memory(placement)
    devices: list[Device] = [*free, *([_DISK] if placement.offload else [])]
    main = devices[0]
    rest = _num_bytes(policy) - sum(map(_num_bytes, blocks))
    if rest > free[main]:
        raise ValueError(
            f"the parts of the policy outside of its transformer blocks take {_gib(rest)}, but "
            f"{_device_name(main)} has {_gib(free[main])} free for weights"
        )
    free[main] -= rest
    sizes = [_num_bytes(block) for block in blocks]
    if sum(sizes) > free[main]:
        free[main] -= max(sizes)  # for a block that is brought there while it computes
    place: dict[int, Device] = {}
    for block, size in zip(blocks, sizes, strict=True):
        while devices[0] != _DISK and free[devices[0]] < size:
            if len(devices) == 1:
                total = _gib(_num_bytes(policy))
                raise ValueError(
                    f"the policy takes {total}, more than the devices have free; give --offload "
                    "DIRECTORY on a disk with as much space"
                )
            devices.pop(0)  # in order: a later block does not go back to an earlier device
        if devices[0] != _DISK:
            free[devices[0]] -= size
        place[id(block)] = devices[0]
    return _covered(policy, "", place, main)


def _covered(
    module: "nn.Module", name: str, place: Mapping[int, Device], main: Device
) -> dict[str, Device]:
    """Entries for a module: one if it lies on one device, or else those of its parts."""
    if id(module) in place:
        return {name: place[id(module)]}
    if not any(id(part) in place for part in module.modules()):
        return {name: main}
    prefix = f"{name}." if name else ""
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    covered: dict[str, Device] = {prefix + tensor: main for tensor, _ in tensors}
    for part_name, part in module.named_children():
        covered |= _covered(part, prefix + part_name, place, main)
    return covered


def _tensors_on(
    device: Device, policy: "nn.Module", device_map: Mapping[str, Device]
) -> "dict[str, torch.Tensor]":
    places = tuple(f"{name}." for name, place in device_map.items() if place == device)
    tensors = (*policy.named_parameters(), *policy.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors if name.startswith(places)}


def _free_memory(placement: Placement) -> dict[Device, int]:
    """Device -> bytes for weights, in the order in which they are filled."""
    from accelerate.utils import get_max_memory

    known = {device: size for device, size in get_max_memory().items() if device != "mps"}
    for device, size in placement.max_memory.items():
        key = int(device) if device.isdecimal() else device
        if key not in known:
            names = ", ".join(map(str, known))
            raise ValueError(f"--max-memory names '{device}', which is not here; allowed: {names}")
        known[key] = size
    return known


def _num_bytes(module: "nn.Module") -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _bytes(size: str) -> int:
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise ValueError(f"'{size}' is not a size in memory; expected e.g. 20GiB or 500MB")
    return int(float(match[1]) * _UNITS[match[2]])


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


def _device_name(device: Device) -> str:
    return "main memory" if device == _CPU else f"cuda:{device}"
