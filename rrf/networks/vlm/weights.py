"""Pretrained weights of a directory: safetensors files, read strictly, never unpickled."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from rrf import atomic
from rrf.networks.tensor_files import differences, listed, shapes_of
from rrf.networks.vlm.catalogue import located

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
ADAPTER = ".lora_"  # in the names of adapters


def weight_files(folder: str | Path) -> list[Path]:
    """The safetensors files of a published model, sorted by name.

    Args:
        folder: A directory, or a name in the catalogue.

    Raises:
        ValueError: If there are none, or if one that the index names is missing.
    """
    folder = located(str(folder))
    if not folder.is_dir():
        raise ValueError(
            f"there are no pretrained weights at {folder}; see which can be fetched: rrf models "
            "setup"
        )
    if (folder / _INDEX).is_file():
        names = sorted(set(atomic.parse_json((folder / _INDEX).read_text())["weight_map"].values()))
    elif (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    unsafe = [name for name in names if Path(name).name != name]
    if unsafe:
        raise ValueError(f"{folder / _INDEX} names '{unsafe[0]}', which is not a file beside it")
    lacking = [name for name in names if not (folder / name).is_file()]
    if lacking:
        raise ValueError(
            f"{folder} is incomplete, it lacks {', '.join(lacking)}; go on fetching it with the "
            "same command that began"
        )
    if not names:
        pickles = sorted(path.name for kind in _PICKLES for path in folder.glob(kind))
        hint = f" ({pickles[0]} could run code when it is read)" if pickles else ""
        raise ValueError(
            f"{folder} has no safetensors files{hint}; fetch the model's safetensors version"
        )
    return [folder / name for name in names]


def weights_digest(folder: str | Path) -> str:
    """SHA-256 of the names and contents of the safetensors files of a published model."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        digest.update(f"{path.name} {atomic.sha256(path)}\n".encode())
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete safetensors file ({error}); remove it and fetch it again"
        ) from error


def read_shapes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors; no weights are read."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        with _opened(path) as file:
            shapes |= {n: tuple(file.get_slice(n).get_shape()) for n in file.keys()}  # noqa: SIM118
    return shapes


def is_float32(folder: str | Path) -> bool:
    """Whether most of the numbers of a published model are float32."""
    sizes = {True: 0, False: 0}
    for path in weight_files(folder):
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                sizes[part.get_dtype() == "F32"] += math.prod(part.get_shape())
    return sizes[True] > sizes[False]


def fill(
    module: nn.Module, folder: str | Path, own_name: Callable[[str], str | None], what: str
) -> None:
    """Copy published weights into a module, tensor by tensor, in the module's number format.

    Args:
        module: Filled in place.
        folder: A directory with safetensors files.
        own_name: The module's name of a published tensor; None for one that is not used.
        what: The module, in messages.

    Raises:
        ValueError: If names or shapes do not agree. The message lists them; nothing is loaded.
    """
    targets = plain_tensors(module)
    published = read_shapes(folder)
    names = {n: target for n in published if (target := own_name(n)) is not None}
    shapes = {target: published[n] for n, target in names.items()}
    check_names(shapes_of(targets), shapes, f"{folder}", what)
    with torch.no_grad():
        for path in weight_files(folder):
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118
                    if name in names:
                        targets[names[name]].copy_(file.get_tensor(name))


def plain_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The weights and saved buffers of a module without adapters, under the names that they have
    without them; also those that checkpoints leave out. They share memory with the module."""
    return {
        name.replace(".base_layer.", "."): value.detach()
        for name, value in (*module.named_parameters(), *_saved_buffers(module))
        if ADAPTER not in name
    }


def _saved_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, part in module.named_modules():
        for name, value in part.named_buffers(prefix=prefix, recurse=False):
            if name.rpartition(".")[2] not in part._non_persistent_buffers_set:
                yield name, value


def check_names(
    expected: Mapping[str, tuple[int, ...]],
    present: Mapping[str, tuple[int, ...]],
    where: str,
    what: str,
) -> None:
    """Compare names and shapes of tensors.

    Raises:
        ValueError: If they differ. The message lists missing, unexpected and differing tensors.
    """
    if wrong := differences(expected, present):
        raise ValueError(f"the weights in {where} do not fit {what}: {listed(wrong)}")
