"""Named tensors in safetensors files: one file, or several with an index where one would be large.

model.safetensors                      up to SHARD_BYTES
model-00001-of-00003.safetensors ...   above, together with
model.safetensors.index.json           {"metadata": {"total_size": bytes}, "weight_map": {name:
                                       file}}, as transformers and the Hugging Face hub have it
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialize

from rrf import atomic

SHARD_BYTES = 5 * 10**9
"""Tensors that are together larger are divided; a single tensor never is."""
_SHOWN = 6  # differences in a message


def index_of(file: Path) -> Path:
    """The index that stands in the place of `file` if its tensors are divided."""
    return file.with_name(f"{file.name}.index.json")


def write(
    file: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors at `file`, or beside it if they are divided; there must be nothing yet."""
    shards = _shards(tensors)
    if len(shards) == 1:
        _write_one(file, shards[0], metadata)
        return
    places = {}
    for number, shard in enumerate(shards, start=1):
        name = f"{file.stem}-{number:05d}-of-{len(shards):05d}{file.suffix}"
        _write_one(file.with_name(name), shard, metadata)
        places |= dict.fromkeys(shard, name)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    index_of(file).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> dict[str, torch.Tensor]:
    """The tensors that `write` wrote at `file`.

    Raises:
        ValueError: If a file is damaged, or does not hold what the index says.
    """
    if not index_of(file).is_file():
        return _read_one(file)
    places = _places(file)
    tensors: dict[str, torch.Tensor] = {}
    for name in sorted(set(places.values())):
        tensors |= _read_one(atomic.inside(file.parent, name, index_of(file).name))
    if tensors.keys() != places.keys():
        wrong = sorted(tensors.keys() ^ places.keys())
        raise ValueError(f"{index_of(file)} and the files it names differ in {wrong[0]}")
    return tensors


def stored_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors that `write` wrote at `file`; only the headers are read.

    Raises:
        ValueError: If a file is damaged.
    """
    is_divided = index_of(file).is_file()
    names = sorted(set(_places(file).values())) if is_divided else [file.name]
    shapes: dict[str, tuple[int, ...]] = {}
    for name in names:
        part = atomic.inside(file.parent, name, index_of(file).name)
        try:
            with safe_open(part, framework="pt") as tensors:
                keys = tensors.keys()
                shapes |= {key: tuple(tensors.get_slice(key).get_shape()) for key in keys}
        except SafetensorError as error:
            raise ValueError(f"{part} is not a safetensors file: {error}") from error
    return shapes


def _places(file: Path) -> dict[str, str]:
    """The index of divided tensors: name -> file."""
    try:
        places = atomic.parse_json(index_of(file).read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(part) for name, part in places.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index_of(file)} is damaged: {error}") from error


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of the names and contents of tensors, in their order."""
    digest = hashlib.sha256()
    for name, value in tensors.items():
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(name.encode())
        digest.update(content.numpy().data)
    return digest.hexdigest()


def differences(
    expected: Mapping[str, Sequence[int]],
    present: Mapping[str, Sequence[int]],
    missing: str = "{} is missing",
    unexpected: str = "{} is unexpected",
) -> list[str]:
    """How two sets of tensors differ, a text for each difference.

    Args:
        expected: Name -> shape of what should be there.
        present: Name -> shape of what is there.
        missing: What to say of a name that is not found.
        unexpected: What to say of a name that is not expected.
    """
    return [
        *(missing.format(name) for name in expected if name not in present),
        *(unexpected.format(name) for name in present if name not in expected),
        *(
            f"{name} is {list(present[name])}, expected {list(shape)}"
            for name, shape in expected.items()
            if name in present and present[name] != shape
        ),
    ]


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """Name -> shape."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def listed(differences: Sequence[str]) -> str:
    """The first of some differences, and how many more there are."""
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _shards(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def _write_one(
    file: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None
) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    file.write_bytes(serialize(plain, {"format": "pt", **(metadata or {})}))


def _read_one(file: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file: {error}") from error
