"""Gymnasium's registry: finding a task and making one of its environments.

A task may carry the config that trains it among its kwargs (`CONFIG_KWARGS`); that one is taken out
before the environment's constructor sees the rest.
"""

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Mapping

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from rrf.config import did_you_mean

CONFIG_KWARGS = ("RoboRenForce_entry_point", "rrf_entry_point")
"""The kwargs of `gymnasium.register` under which a task names the config that trains it."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def find_spec(task: str) -> EnvSpec:
    """What was registered as `task`; for "module:task" the module is imported first.

    Raises:
        ValueError: For an unknown task, with the closest known one.
    """
    module, _, name = task.rpartition(":")
    if module:
        importlib.import_module(module)
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise ValueError(f"no Gymnasium task '{name}'{did_you_mean(name, gymnasium.registry)}")
    return spec


def make_envs(
    spec: EnvSpec, kwargs: Mapping[str, typing.Any], num_envs: int = 1
) -> list[gymnasium.Env]:
    """`num_envs` environments without Gymnasium's time limit and checks, which cost time and which
    `rrf.envs.gymnasium_env` does itself.

    Raises:
        ValueError: For an argument the task does not take.
        ImportError: Where the task's simulator is not installed, with the command that installs it.
    """
    arguments = {name: spec.kwargs[name] for name in spec.kwargs if name not in CONFIG_KWARGS}
    bare = dataclasses.replace(spec, kwargs=arguments | dict(kwargs), order_enforce=False)
    try:
        return [
            gymnasium.make(bare, max_episode_steps=-1, disable_env_checker=True)
            for _ in range(num_envs)
        ]
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ImportError(f"{spec.id} cannot be made here: {error}") from error
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in kwargs:
            raise
        close = did_you_mean(unknown[1], _parameters(bare))
        raise ValueError(f"{spec.id} takes no argument '{unknown[1]}'{close}") from error


def _parameters(spec: EnvSpec) -> list[str]:
    creator = spec.entry_point
    creator = load_env_creator(creator) if isinstance(creator, str) else creator
    assert creator is not None
    parameters = inspect.signature(creator).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in _NAMED]
