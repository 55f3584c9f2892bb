"""The class names in saved configs, which stay valid when a class moves to another module.

A config that is written out names its class by its current module, so that readers of the file can
find the class. Two things must survive a move:

* Existing files name the old module. `located` still finds the class.
* Digests (of protocols, gates, runs) must not change because a file moved. They are computed with
  the module that a class was first saved from (`settled`).

A config may also grow: a new field whose default means what the code did before changes neither
digests nor the run that is resumed.

When classes move, add a line for their new module to `FIRST_MODULE`. When they move again, change
the left side of that line. When a class of configs that are already saved gets a field, add the
field and its default to `ADDED_FIELDS`.
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
    "rrf.envs.demonstrations.collect": "rrf.envs.collect",
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
"""Current module -> the module that its configs were first saved from."""

ADDED_FIELDS: dict[str, dict[str, typing.Any]] = {
    "rrf.algorithms.configs:BehaviorCloningCfg": {"kl_coef": 0.0},
    "rrf.algorithms.configs:GRPOCfg": {"decoupled": None, "overlong_share": 0.0},
    "rrf.algorithms.configs:ReinforceCfg": {"decoupled": None},
    "rrf.algorithms.configs:VLAPPOCfg": {"decoupled": None},
    "rrf.components.configs:FlowMatchingHeadCfg": {
        "num_noise_draws": 1,
        "start_noise": 1.0,
        "trains_padding": True,
    },
    "rrf.envs.control_configs:MotionEnvCfg": {
        "frame_parts": [
            *("joint_pos", "joint_vel", "height", "lin_vel", "ang_vel", "gravity", "feet"),
        ],
        "reference_init": 0.0,
    },
    "rrf.envs.metaworld:MetaWorldCfg": {"horizons": {}},
    "rrf.evaluation.protocol:ProtocolCfg": {
        "env_options": {},
        "execution": {TYPE_KEY: "rrf.evaluation.vla.execution_configs:RecedingHorizonCfg"},
    },
    "rrf.networks.vlm.prismatic.configs:PrismaticCfg": {"random_weights": "stock"},
    "rrf.policies.vla.residual_configs:ResidualVLACfg": {"base_share": 0.0},
    "rrf.policies.vla.vlm_configs:VLMPolicyCfg": {
        "past_images": 0,
        "past_states": 0,
        "past_stride": 1,
        "robots": {},
    },
    "rrf.runners.configs:AdamWCfg": {"is_8bit": False},
    "rrf.runners.configs:SupervisedRunnerCfg": {
        "advantage": None,
        "caches_features": False,
        "compiles_head": False,
        "lr_factors": {},
        "num_microbatches": None,
        "pretrained": None,
        "robots": {},
        "sharding": None,
    },
    "rrf.runners.configs:RayCfg": {
        "node_groups": {},
        "offload": False,
        "pipeline_stage_num": 1,
    },
    "rrf.runners.vla_rl.residual_configs:ResidualSACRunnerCfg": {"early_stop": None},
    "rrf.runners.configs:VLARLRunnerCfg": {
        "device": "cpu",
        "early_stop": None,
        "inference_batch": 16,
        "max_staleness": 0,
        "micro_batch_size": None,
        "precision": "fp32",
        "ray": None,
    },
}
"""Class, by its first module -> fields that it did not have at first, each with the value that
means what was done before."""


def located(path: str) -> typing.Any:
    """Import and return the object that is, or once was, at "module:Name".

    Raises:
        ImportError, AttributeError: If no such object is known, now or from before a move.
    """
    module, _, name = path.partition(":")
    heirs = [now for now, first in FIRST_MODULE.items() if first == module]
    for heir in heirs:
        found = getattr(importlib.import_module(heir), name, None)
        if found is not None:
            return found
    return getattr(importlib.import_module(module), name)


def settled(data: typing.Any) -> typing.Any:
    """Plain data of configs for digests: each class is named by the module it was first saved from.

    The result is the same whether `data` names a class by an old or by its current module, and
    whether or not it has fields of `ADDED_FIELDS` with their first value.
    """
    return without_added(_renamed(data, _first))


def without_added(data: typing.Any) -> typing.Any:
    """Plain data of configs without those `ADDED_FIELDS` that have their first value."""
    if isinstance(data, Mapping):
        added = ADDED_FIELDS.get(_first(str(data.get(TYPE_KEY))), {})
        return {
            key: without_added(value)
            for key, value in data.items()
            if key not in added or value != added[key]
        }
    if isinstance(data, list):
        return [without_added(item) for item in data]
    return data


def current(data: typing.Any) -> typing.Any:
    """Plain data of configs with each class named by its current module; other text is kept."""
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
