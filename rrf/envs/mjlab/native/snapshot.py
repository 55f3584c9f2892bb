"""Captures everything that determines how an object continues, as named tensors and plain values,
and restores it.

mjlab keeps its state in many places: buffers of managers and of their terms, timers, and ranges in
a config that a curriculum changed. `capture` walks everything that is reachable from the given
roots through attributes, dicts, lists and tuples. `restore` writes into an object that was built
from the same config. Tensors of the same shape are written in place, so objects that share a tensor
still share it.
"""

import collections
import enum
import random
import types
import typing
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

_SCALARS = (bool, int, float, str, type(None))
_OPAQUE = (
    "builtins", "functools", "inspect", "logging", "mujoco", "mujoco_warp", "numpy", "pathlib",
    "re", "threading", "torch", "types", "typing", "viser", "warp",
)  # fmt: skip
_UNSAVED = (
    collections.deque, set, random.Random, np.random.Generator, np.random.RandomState,
    torch.Generator,
)  # fmt: skip
_DERIVED = ("_cached_data", "_cache_valid")  # of sensors: recomputed before they are next read
Path = tuple[str, ...]


class _Place(typing.NamedTuple):
    """A value, its path, and a function that replaces it in its container."""

    path: Path
    value: typing.Any
    replace: Callable[[typing.Any], None]


def capture(
    roots: Mapping[str, typing.Any], *, skip: tuple[type, ...] = ()
) -> tuple[dict[str, torch.Tensor], dict[str, typing.Any]]:
    """Copies of all tensors and arrays, and all plain values, by path.

    Args:
        skip: Types whose attributes are not visited, unless the object is a root.
    """
    tensors, facts = {}, {}
    for place in _places(roots, skip):
        name = "/".join(place.path)
        if isinstance(place.value, torch.Tensor):
            tensors[name] = place.value.detach().clone()
        elif isinstance(place.value, _UNSAVED):
            continue
        elif isinstance(place.value, np.ndarray):
            tensors[name] = torch.from_numpy(place.value.copy())
        else:
            facts[name] = list(place.value) if isinstance(place.value, tuple) else place.value
    return tensors, facts


def unsaved(roots: Mapping[str, typing.Any], *, skip: tuple[type, ...] = ()) -> list[str]:
    """Paths of the random generators, deques and sets, which `capture` leaves out."""
    places = _places(roots, skip)
    return ["/".join(place.path) for place in places if isinstance(place.value, _UNSAVED)]


def restore(
    roots: Mapping[str, typing.Any],
    tensors: Mapping[str, torch.Tensor],
    facts: Mapping[str, typing.Any],
    *,
    skip: tuple[type, ...] = (),
) -> None:
    """Write what `capture` returned into `roots`.

    Raises:
        ValueError: If a value has no place here, or a tensor has another number of dimensions here.
    """
    left = {**tensors, **facts}
    for place in list(_places(roots, skip)):
        name = "/".join(place.path)
        if name in left:
            _write(place, left.pop(name), name)
    for name in sorted(left, key=_natural):
        _create(roots, name, left[name])


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts the entry 2 of a list before its entry 10."""
    return [(len(part), part) for part in name.split("/")]


def _write(place: _Place, value: typing.Any, name: str) -> None:
    old = place.value
    if isinstance(old, torch.Tensor) and isinstance(value, torch.Tensor):
        if old.shape == value.shape and old.dtype == value.dtype:
            if 0 in old.stride() and old.numel() > 1 and not old.is_contiguous():
                place.replace(value.clone())
            elif not torch.equal(old, value):  # it may be the model's, which must not be written
                old.copy_(value)
            return
        if old.ndim != value.ndim:
            raise ValueError(
                f"'{name}' has shape {list(old.shape)} here and {list(value.shape)} in the state; "
                "the state comes from an environment with another config"
            )
        place.replace(value.clone())
    elif isinstance(old, np.ndarray):
        old[...] = value.numpy() if isinstance(value, torch.Tensor) else value
    elif isinstance(value, torch.Tensor):
        place.replace(value.clone())
    elif isinstance(old, tuple):
        place.replace(tuple(value))
    elif old != value:
        place.replace(value)


def _create(roots: Mapping[str, typing.Any], name: str, value: typing.Any) -> None:
    """Write a value that did not exist after construction: a new entry of a dict or list."""
    *parents, leaf = name.split("/")
    node: typing.Any = roots
    for parent in parents:
        child = next((value for key, value, _ in _children(node) if key == parent), None)
        if child is None and isinstance(node, dict):
            child = node[parent] = {}
        node = child
    value = value.clone() if isinstance(value, torch.Tensor) else value
    if isinstance(node, list) and leaf == str(len(node)):
        node.append(value)
    elif isinstance(node, dict):
        node[leaf] = value
    else:
        raise ValueError(
            f"the state has '{name}', for which there is no place here; it comes from an "
            "environment with another config"
        )


def _places(roots: Mapping[str, typing.Any], skip: tuple[type, ...]) -> Iterator[_Place]:
    seen: set[int] = set()
    for name, root in roots.items():
        seen.add(id(root))
        for child_name, child, replace in _children(root):
            yield from _walk((name, child_name), child, replace, seen, skip)


def _walk(
    path: Path,
    value: typing.Any,
    replace: Callable[[typing.Any], None],
    seen: set[int],
    skip: tuple[type, ...],
) -> Iterator[_Place]:
    if isinstance(value, (*skip, enum.Enum)):
        return
    if isinstance(value, _SCALARS):
        yield _Place(path, value, replace)
        return
    if isinstance(value, tuple) and all(isinstance(item, _SCALARS) for item in value):
        yield _Place(path, value, replace)
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (torch.Tensor, np.ndarray, *_UNSAVED)):
        yield _Place(path, value, replace)
        return
    for name, child, setter in _children(value):
        yield from _walk((*path, name), child, setter, seen, skip)


def _children(value: typing.Any) -> Iterator[tuple[str, typing.Any, Callable]]:
    if isinstance(value, dict):
        for key, child in list(value.items()):
            if isinstance(key, str | int):
                yield str(key), child, _item_setter(value, key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield str(index), child, _item_setter(value, index)
    elif isinstance(value, tuple):
        for index, child in enumerate(value):
            yield str(index), child, _no_replace
    elif hasattr(value, "__dict__") and not _is_opaque(value):
        for name, child in list(vars(value).items()):
            if name not in _DERIVED:
                yield name, child, _attribute_setter(value, name)


def _is_opaque(value: typing.Any) -> bool:
    if isinstance(value, type | types.FunctionType | types.ModuleType):
        return True
    return type(value).__module__.partition(".")[0] in _OPAQUE


def _item_setter(container: typing.Any, key: typing.Any) -> Callable[[typing.Any], None]:
    def replace(value):
        container[key] = value

    return replace


def _attribute_setter(owner: typing.Any, name: str) -> Callable[[typing.Any], None]:
    def replace(value):
        object.__setattr__(owner, name, value)

    return replace


def _no_replace(_value: typing.Any) -> None:
    raise AssertionError("a root or an entry of a tuple cannot be replaced")
