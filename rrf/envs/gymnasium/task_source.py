"""What a registered task is made of. It identifies results, so an edited task is another task."""

import contextlib
import functools
import hashlib
import inspect
import json
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from rrf import atomic
from rrf.envs.gymnasium.registry import find_spec

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_CODE = (type, types.FunctionType, types.ModuleType)


def source_of(task: str) -> dict | None:
    """A registered task as plain data; None for a task that is not registered.

    It contains the digests of the files that hold the task's class, wrappers and configs and the
    functions that they name, its time limit and its kwargs. Files of installed packages are left
    out, because their versions are recorded elsewhere.
    """
    module, _, name = task.rpartition(":")
    with contextlib.suppress(ValueError):  # making the task reports the error
        find_spec(task)
    spec = gymnasium.registry.get(name)
    if spec is None:
        return None
    parts = _Parts()
    if module:
        parts.add_file(sys.modules.get(module))
    made_of = {"entry_point": spec.entry_point, "kwargs": spec.kwargs}
    made_of |= {"wrappers": spec.additional_wrappers, "max_episode_steps": spec.max_episode_steps}
    plain = parts.plain(made_of)
    return {"files": sorted(map(atomic.sha256, parts.files)), "settings": plain}


def joined(digest: str, task: str) -> str:
    """`digest`, of this package's code, combined with what a registered task is made of."""
    made_of = source_of(task)
    return atomic.digest_of([digest, made_of]) if made_of else digest


class _Parts:
    """Turns values into plain data that is the same in every process, and collects their code
    files.
    """

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self._inside: set[int] = set()  # ids of the objects that are being visited

    def plain(self, value: typing.Any) -> typing.Any:
        """`value` as JSON data."""
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if value is None or isinstance(value, str | int | float):
            return value
        if id(value) in self._inside:
            return "..."
        self._inside.add(id(value))
        try:
            return self._plain(value)
        finally:
            self._inside.remove(id(value))

    def add_file(self, code: typing.Any) -> None:
        """Add the file of a module, class or function, or of its "module:name".

        Files of installed packages are not added.
        """
        with contextlib.suppress(
            TypeError, ImportError, AttributeError, ValueError, gymnasium.error.Error
        ):  # built in, or not found
            file = inspect.getsourcefile(load_env_creator(code) if isinstance(code, str) else code)
            if file and "site-packages" not in file:
                self.files.add(Path(file))

    def _plain(self, value: typing.Any) -> typing.Any:
        if isinstance(value, _CODE):
            self.add_file(value)
            return getattr(value, "__qualname__", value.__name__)
        if isinstance(value, Mapping):
            for key, entry in value.items():
                if str(key).endswith("entry_point") and isinstance(entry, str):
                    self.add_file(entry)
            return {str(key): self.plain(entry) for key, entry in value.items()}
        if hasattr(value, "_asdict"):  # a named tuple
            return self.plain(value._asdict())
        if isinstance(value, list | tuple):
            return [self.plain(entry) for entry in value]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.plain(entry)) for entry in value)
        if isinstance(value, functools.partial):
            return self.plain([value.func, value.args, value.keywords])
        if hasattr(value, "__array__"):
            array = np.asarray(value)
            digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
            return [str(array.dtype), list(array.shape), digest]
        self.add_file(type(value))
        fields = getattr(value, "__dict__", None)
        what = self.plain(fields) if fields else _ADDRESS.sub("", repr(value))
        return [type(value).__qualname__, what]
