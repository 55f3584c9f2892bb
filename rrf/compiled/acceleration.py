"""Which algorithms learn in compiled code: instances of exactly the classes it was written for.

`ppo.c`, `sac.c` and `iql.c` repeat what the classes in `_CODES` compute. A subclass may compute
something else in any of its methods, and an instance may have a method, a hook or an optimizer of
its own. So only the very types count, and whatever is not known here learns with its own code.
"""

import dataclasses
import logging
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterator

import torch
from torch import nn

from rrf.compiled import iql, perceptron, ppo, sac

_log = logging.getLogger("rrf.compiled")
_LINEAR = {
    "rrf.networks.mlp:MLP": "torch.nn.modules.linear:Linear",
    "rrf.networks.batched_mlp:BatchedMLP": "rrf.networks.batched_mlp:BatchedLinear",
}
"""Perceptron -> its linear layers."""


@dataclasses.dataclass(frozen=True)
class _Code:
    """Compiled code, and all that it was written for. Classes are named as "module:Name"."""

    module: types.ModuleType  # with `library`, and `unsuited`, which judges an instance's settings
    learner: Callable[[typing.Any], typing.Any]
    algorithms: tuple[str, ...]
    parts: dict[str, tuple[str, ...]]  # attribute -> classes that it may have
    networks: dict[str, str]  # attribute -> the class of its backbone
    optimizers: dict[str, str]  # attribute, or key of `optimizers` -> the module that it moves
    called: frozenset[str] = frozenset()  # methods that the code itself calls on the instance


_CODES = (
    _Code(
        ppo,
        ppo.CompiledPPO,
        algorithms=(
            "rrf.algorithms.on_policy.ppo:PPO",
            "rrf.algorithms.imitation.gail:GAIL",
            "rrf.algorithms.imitation.amp:AMP",
            "rrf.algorithms.model_based.model_ppo:ModelPPO",
        ),
        parts={
            "policy.actor": ("rrf.policies.control.actor_critic:GaussianActor",),
            "policy.critic": ("rrf.policies.control.actor_critic:VNetwork",),
            "extensions": (
                "rrf.algorithms.on_policy.rnd:RND",
                "rrf.algorithms.on_policy.symmetry:Symmetry",
                "rrf.algorithms.imitation.amp:Style",
            ),
        },
        networks=dict.fromkeys(("policy.actor", "policy.critic"), "rrf.networks.mlp:MLP"),
        optimizers={"actor_optimizer": "policy.actor", "critic_optimizer": "policy.critic"},
        called=frozenset({"order"}),
    ),
    _Code(
        sac,
        sac.CompiledSAC,
        algorithms=(
            "rrf.algorithms.off_policy.sac:SAC",
            "rrf.algorithms.model_based.mbpo:MBPO",
        ),
        parts={
            "policy.actor": ("rrf.policies.control.off_policy_actors:SACActor",),
            "policy.critic": ("rrf.policies.control.batched_critics:QNetwork",),
            "temperature": ("rrf.algorithms.off_policy.sac:Temperature",),
        },
        networks={
            "policy.actor": "rrf.networks.mlp:MLP",
            "policy.critic": "rrf.networks.batched_mlp:BatchedMLP",
            "target_critic": "rrf.networks.batched_mlp:BatchedMLP",
        },
        optimizers={"actor": "policy.actor", "critic": "policy.critic", "alpha": "temperature"},
    ),
    _Code(
        iql,
        iql.CompiledIQL,
        algorithms=("rrf.algorithms.offline.iql:IQL",),
        parts={
            "policy.actor": ("rrf.policies.control.offline_policies:BoundedActor",),
            "policy.critic": ("rrf.policies.control.batched_critics:QNetwork",),
            "policy.value": ("rrf.policies.control.actor_critic:VNetwork",),
        },
        networks={
            "policy.actor": "rrf.networks.mlp:MLP",
            "policy.critic": "rrf.networks.batched_mlp:BatchedMLP",
            "policy.value": "rrf.networks.mlp:MLP",
            "target_critic": "rrf.networks.batched_mlp:BatchedMLP",
        },
        optimizers={"actor": "policy.actor", "critic": "policy.critic", "value": "policy.value"},
    ),
)


def accelerate(algorithm: typing.Any) -> None:
    """Let an algorithm learn in compiled code, if that is the code of exactly this algorithm.

    What was decided and why is logged in one line.
    """
    name = type(algorithm).__name__
    code = next((code for code in _CODES if _is_one_of(algorithm, code.algorithms)), None)
    reason = "there is no compiled code for it" if code is None else _obstacle(algorithm, code)
    if code is None or reason:
        _log.info("%s learns with torch's operators: %s", name, reason)
    else:
        algorithm.compiled = code.learner(algorithm)
        _log.info("%s learns in compiled code", name)


def _obstacle(algorithm: typing.Any, code: _Code) -> str | None:
    """Why the code would not compute what the algorithm does; None if it does."""
    changed = set(_replaced_methods(algorithm)) - code.called
    if changed:
        return f"this instance has its own {min(changed)}"
    for path, classes in code.parts.items():
        part = operator.attrgetter(path)(algorithm)
        for each in part.values() if isinstance(part, dict) else [part]:
            if not _is_one_of(each, classes):
                return f"{path} has a {type(each).__name__}, which its code does not know"
    for path, backbone in code.networks.items():
        if reason := _network_obstacle(operator.attrgetter(path)(algorithm), backbone):
            return f"{path} {reason}"
    for name, path in code.optimizers.items():
        held = getattr(algorithm, "optimizers", {})
        optimizer = held[name] if name in held else getattr(algorithm, name)
        if not _is_plain_adam(optimizer, operator.attrgetter(path)(algorithm)):
            return f"the optimizer of {path} is not plain Adam of all its weights"
    if reason := code.module.unsuited(algorithm):
        return reason
    return None if code.module.library() is not None else "the code could not be compiled"


def _network_obstacle(network: typing.Any, backbone: str) -> str | None:
    layers = getattr(network.backbone, "layers", None)
    if network.memory is not None:
        return "has a memory"
    if not _is_one_of(network.backbone, (backbone,)) or layers is None:
        return f"has a {type(network.backbone).__name__}, which its code does not know"
    linear = type(layers[0])
    if not _is_one_of(layers[0], (_LINEAR[backbone],)):
        return f"has layers of type {linear.__name__}"
    if perceptron.known_activation(layers, linear) is None:
        return "has other layers than linear ones with ReLU, tanh or ELU between them"
    for module in (network, network.backbone):
        if changed := [*_replaced_methods(module), *_hooks(module)]:
            return f"has its own {changed[0]}"
    return None


def _is_one_of(part: typing.Any, classes: tuple[str, ...]) -> bool:
    """Whether the type of `part` is one of these itself. Nothing is imported."""
    for path in classes:
        module, _, name = path.partition(":")
        if type(part) is getattr(sys.modules.get(module), name, None):
            return True
    return False


def _replaced_methods(instance: typing.Any) -> Iterator[str]:
    """Attributes of the instance that hide methods of its class."""
    for name in vars(instance):
        if not name.startswith("__") and callable(getattr(type(instance), name, None)):
            yield name


def _hooks(module: nn.Module) -> Iterator[str]:
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        yield "hook"


def _is_plain_adam(optimizer: typing.Any, module: nn.Module) -> bool:
    """Whether it is Adam without options, of all parameters of the module and no others."""
    if type(optimizer) is not torch.optim.Adam or len(optimizer.param_groups) != 1:
        return False
    [group] = optimizer.param_groups
    parameters = list(module.parameters())
    return (
        group["betas"] == (0.9, 0.999)
        and not (group["weight_decay"] or group["amsgrad"] or group["maximize"])
        and all(parameter.requires_grad for parameter in parameters)
        and [id(parameter) for parameter in group["params"]] == list(map(id, parameters))
    )
