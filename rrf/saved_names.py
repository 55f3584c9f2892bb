"""Under which names configs are saved, through the moves of their classes.

A config that is written out names its class by where it lies now, so that whoever reads the file
can open it. Two things must outlive a move:

* Files that are there already name the place of their day; `located` finds the class all the same.
* Digests (of protocols, gates, runs) must not change because a file moved. They are taken of the
  module that a class was first saved from: `settled`.

When classes move, their new module gets a line in `FIRST_MODULE`; when they move again, its left
side changes.
"""

import importlib
import typing
from collections.abc import Mapping

TYPE_KEY = "type"
FIRST_MODULE = {
    "rrf.algorithms.off_policy.configs": "rrf.algorithms.off_policy_configs",
    "rrf.algorithms.on_policy.configs": "rrf.algorithms.on_policy_configs",
    "rrf.algorithms.smooth.configs": "rrf.algorithms.on_policy_configs",
    "rrf.algorithms.vla.configs": "rrf.algorithms.configs",
    "rrf.envs.configs": "rrf.envs.control_configs",
    "rrf.envs.gymnasium.configs": "rrf.envs.control_configs",
    "rrf.envs.metaworld.collect": "rrf.envs.collect",
    "rrf.envs.metaworld.configs": "rrf.envs.metaworld",
    "rrf.envs.mjlab.configs": "rrf.envs.control_configs",
    "rrf.envs.two_goals.configs": "rrf.envs.control_configs",
    "rrf.evaluation.control.protocol": "rrf.evaluation.control_protocol",
    "rrf.evaluation.gates.gate": "rrf.evaluation.gates",
    "rrf.evaluation.protocols.base": "rrf.evaluation.protocol",
    "rrf.evaluation.protocols.limits": "rrf.evaluation.limits",
    "rrf.evaluation.vla.protocol": "rrf.evaluation.protocol",
    "rrf.policies.control.configs": "rrf.components.actor_configs",
    "rrf.policies.control.off_policy_configs": "rrf.components.off_policy_configs",
    "rrf.policies.vla.configs": "rrf.components.configs",
    "rrf.runners.control.configs": "rrf.runners.control_configs",
    "rrf.runners.supervised.configs": "rrf.runners.configs",
    "rrf.runners.vla_rl.configs": "rrf.runners.configs",
}
"""Module of today -> the one that its configs were first saved from."""


def located(path: str) -> typing.Any:
    """The object that is, or once was, at "module:Name", imported now.

    Raises:
        ImportError, AttributeError: If nothing of that name ever was there.
    """
    module, _, name = path.partition(":")
    heirs = [now for now, first in FIRST_MODULE.items() if first == module]
    for heir in heirs:
        found = getattr(importlib.import_module(heir), name, None)
        if found is not None:
            return found
    return getattr(importlib.import_module(module), name)


def settled(data: typing.Any) -> typing.Any:
    """Plain data of configs with each class named as when it was first saved: what digests are of.

    Data that name classes by an earlier place give the same as data that name today's.
    """
    return _renamed(data, _first)


def current(data: typing.Any) -> typing.Any:
    """Plain data of configs with each class named by where it lies now; other text stays."""
    return _renamed(data, _now)


def _first(path: str) -> str:
    module, colon, name = path.partition(":")
    return f"{FIRST_MODULE.get(module, module)}{colon}{name}"


def _now(path: str) -> str:
    try:
        found = located(path)
    except (ImportError, AttributeError):
        return path
    return f"{found.__module__}:{found.__qualname__}" if isinstance(found, type) else path


def _renamed(data: typing.Any, rename: typing.Callable[[str], str]) -> typing.Any:
    if isinstance(data, Mapping):
        return {
            key: rename(value)
            if key == TYPE_KEY and isinstance(value, str) and value.startswith("rrf.")
            else _renamed(value, rename)
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [_renamed(item, rename) for item in data]
    return data
