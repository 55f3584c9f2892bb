"""rsl_rl's `model_*.pt` files: reads all three generations of the format, writes the newest.

    up to 3.x   model_state_dict: actor.0.weight, critic.0.weight, std or log_std, memory_a.rnn.*,
                actor_obs_normalizer._mean (2.x has a separate obs_norm_state_dict)
    4.x         actor_state_dict and critic_state_dict: mlp.0.weight, std or log_std,
                obs_normalizer._mean, rnn.rnn.*
    5.x         the same with distribution.std_param or distribution.log_std_param

Our names are backbone.layers.0.weight, std or log_std, normalizer.mean, memory.rnn.*. rsl_rl's
statistics have a leading dimension of 1, ours have not. rsl_rl clamps the standard deviation where
it is used; we clamp it after every optimizer step.

Legend: D width of an observation.
"""

import dataclasses
import io
import pickle
import re
import typing
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import torch
from torch import nn

from rrf import atomic
from rrf.algorithms.on_policy.rsl_rl_interface import STD_NAMES
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.actor_critic import ActorCritic, GaussianActor
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    StateIndStdActorCfg,
    StateNetworkCfg,
    VNetworkCfg,
)
from rrf.policies.control.lipsnet import LipsNetActor
from rrf.policies.control.state_network import StateNetwork

Weights = dict[str, torch.Tensor]

_TO_OURS = (  # prefixes of names: rsl_rl's, ours
    ("mlp.", "backbone.layers."),
    ("obs_normalizer._", "normalizer."),
    ("obs_normalizer.", "normalizer."),
    ("rnn.rnn.", "memory.rnn."),
    *STD_NAMES.items(),
)
_FIRST_GENERATION = {
    "actor": (
        ("actor.", "mlp."),
        ("actor_obs_normalizer.", "obs_normalizer."),
        ("memory_a.", "rnn."),
    ),
    "critic": (
        ("critic.", "mlp."),
        ("critic_obs_normalizer.", "obs_normalizer."),
        ("memory_c.", "rnn."),
    ),
}
_OLD_NORMALIZERS = {
    "actor": ("obs_norm_state_dict",),
    "critic": ("privileged_obs_norm_state_dict", "critic_obs_norm_state_dict"),
}
_TRAINING = ("optimizer_state_dict", "rnd_state_dict", "rnd_optimizer_state_dict", "infos")
_PARTS = ("model", "actor", "critic", "student", "teacher")
_KNOWN = {
    *(f"{part}_state_dict" for part in _PARTS),
    *(key for keys in _OLD_NORMALIZERS.values() for key in keys),
    *(*_TRAINING, "iter"),
}
"""What rsl_rl writes into a file; the actor does not depend on what belongs to training."""
_ADAM = ("step", "exp_avg", "exp_avg_sq")


@dataclasses.dataclass
class RslRlCheckpoint:
    """The content of a `model_*.pt`, with our parameter names."""

    actor: Weights
    critic: Weights
    iteration: int
    generation: str  # "3", "4" or "5": the newest major version that wrote such files


def read(path: str | Path) -> RslRlCheckpoint:
    """Read a checkpoint of any generation.

    Raises:
        ValueError: If the file is not a checkpoint of rsl_rl (the message says what it holds), or
            if a weight is not a tensor or not finite.
    """
    data = load(path)
    if "model_state_dict" in data:
        _require_all_used(data, path)
        parts = {name: _first_generation(data, name, path) for name in ("actor", "critic")}
        generation = "3"
    elif "actor_state_dict" in data and "critic_state_dict" in data:
        parts = {who: tensors_of(data, f"{who}_state_dict", path) for who in ("actor", "critic")}
        is_newest = any(name.startswith("distribution.") for name in parts["actor"])
        generation = "5" if is_newest else "4"
    else:
        raise ValueError(
            f"{path} holds {', '.join(sorted(map(str, data)))}; expected model_state_dict (rsl_rl "
            "up to 3.x), or actor_state_dict and critic_state_dict (rsl_rl 4.x and 5.x)"
        )
    actor, critic = (our_weights(part) for part in parts.values())
    return RslRlCheckpoint(actor, critic, iteration_of(data, path), generation)


def fitted(cfg: ActorCriticPackCfg, original: RslRlCheckpoint) -> ActorCriticPackCfg:
    """`cfg` with the checkpoint's layer widths, memory, normaliser and kind of standard deviation.

    Activations and observation groups are not in the checkpoint; those of `cfg` are kept.

    Raises:
        ValueError: If `cfg` has networks that rsl_rl does not have; the message names them.
    """
    _require_expressible(cfg)
    actor = fitted_network(cfg.actor_cfg, original.actor, "actor")
    if "log_std" in original.actor or "std" in original.actor:
        actor = actor.override({"use_log_std": "log_std" in original.actor})
    critic = fitted_network(cfg.critic_cfg, original.critic, "critic")
    return cfg.replace(actor_cfg=actor, critic_cfg=critic)


def weights_of(original: RslRlCheckpoint) -> Weights:
    """All weights, with the names that they have in an `ActorCritic`."""
    actor = {f"actor.{name}": value for name, value in original.actor.items()}
    return actor | {f"critic.{name}": value for name, value in original.critic.items()}


def write(
    path: str | Path,
    module: nn.Module,
    iteration: int,
    trainer_tensors: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write an `ActorCritic` in the format of rsl_rl 5.x.

    The file contains Adam's state if `trainer_tensors` (the tensors of our trainer_state/) has it.

    Raises:
        ValueError: If rsl_rl does not have such a network.
    """
    policy = expressible(module)
    data = {
        f"{name}_state_dict": their_weights(getattr(policy, name).state_dict())
        for name in ("actor", "critic")
    }
    networks = {"actor": policy.actor, "critic": policy.critic}
    data["optimizer_state_dict"] = adam_state(networks, trainer_tensors or {})
    content = io.BytesIO()
    torch.save(data | {"iter": iteration, "infos": None}, content)
    atomic.write_bytes(path, content.getvalue())


def expressible(policy: nn.Module) -> ActorCritic:
    """`policy` itself. Raises ValueError with the reason if rsl_rl cannot represent it."""
    if not isinstance(policy, ActorCritic) or type(policy.actor) is not GaussianActor:
        kind = type(getattr(policy, "actor", policy)).__name__
        more = " (LipsNet)" if kind == LipsNetActor.__name__ else ""
        raise ValueError(
            f"rsl_rl has no {kind}{more}; it supports only Gaussian policies of PPO. `rrf export "
            "--onnx` exports every policy"
        )
    for name in ("actor", "critic"):
        activation(getattr(policy, name).cfg.backbone_cfg, name)
    return policy


def described(policy: ActorCritic) -> dict[str, str]:
    """The settings of actor and critic in rsl_rl's config that fit a file written by `write`."""
    return {name: described_network(getattr(policy, name), name) for name in ("actor", "critic")}


def described_network(network: StateNetwork, who: str) -> str:
    """The settings of one network in rsl_rl's config."""
    cfg: StateNetworkCfg = network.cfg
    layers = (
        f"hidden_dims={cfg.backbone_cfg.hidden_features}, "
        f"activation={activation(cfg.backbone_cfg, who).lower()}, "
        f"obs_normalization={cfg.obs_normalization}"
    )
    if cfg.memory is not None:
        layers += (
            f", rnn_type={cfg.memory.kind}, rnn_hidden_dim={cfg.memory.hidden_size}, "
            f"rnn_num_layers={cfg.memory.num_layers}"
        )
    if isinstance(network, GaussianActor):
        layers += f", std_type={'log' if network.uses_log_std else 'scalar'}"
    return layers


def activation(cfg: MLPCfg, who: str) -> str:
    """The activation after every hidden layer. Raises ValueError if there is not exactly one kind,
    if the output layer has one, or if the network is no MLP."""
    if type(cfg) is not MLPCfg:
        raise ValueError(
            f"{who}_cfg.backbone_cfg is a {type(cfg).__name__}, but rsl_rl supports only an "
            "MLPCfg. `rrf export --onnx` exports every policy"
        )
    *hidden, output = cfg.activations
    kinds = {tuple(name for name, _ in after) for after in hidden}
    if output or len(kinds) != 1 or len(names := kinds.pop()) != 1:
        raise ValueError(
            f"{who}_cfg.backbone_cfg.activations is {cfg.activations}, but rsl_rl supports only "
            "the same activation after each hidden layer and none after the output"
        )
    return names[0]


def _require_expressible(cfg: ActorCriticPackCfg) -> None:
    for where, part, expressible in (
        ("policy", cfg, ActorCriticPackCfg),
        ("policy.actor_cfg", cfg.actor_cfg, StateIndStdActorCfg),
        ("policy.critic_cfg", cfg.critic_cfg, VNetworkCfg),
    ):
        if part._builds != expressible._builds:
            raise ValueError(
                f"{where} is {type(part).__name__}, which rsl_rl does not have; it supports only "
                f"Gaussian policies of PPO ({expressible.__name__}). Use a preset with such a "
                "policy, e.g. go1-flat-ppo"
            )


def load(path: str | Path) -> dict:
    """The content of a file. Raises ValueError if it is not a torch checkpoint of tensors."""
    if Path(path).is_file() and not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a torch checkpoint, or the file is truncated")
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a torch checkpoint of tensors: {reason}") from error
    if not isinstance(data, dict):
        raise ValueError(
            f"{path} holds a {type(data).__name__}, expected a dict as written by rsl_rl"
        )
    strange = sorted(map(str, data.keys() - _KNOWN))
    if strange and any(f"{part}_state_dict" in data for part in _PARTS):
        raise ValueError(
            f"{path} holds {strange[0]}, which rsl_rl does not write; the file is of another "
            "program, whose actor may depend on it"
        )
    return data


def tensors_of(data: dict, key: str, path: str | Path) -> Weights:
    """The tensors, by name, that `data` has under `key`.

    Raises ValueError if something else is there, or if a number is not finite.
    """
    if not isinstance(tensors := data[key], dict):
        raise ValueError(
            f"{path}: {key} is a {type(tensors).__name__}, expected a dict of tensors as written "
            "by rsl_rl"
        )
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{path}: {key} has a {type(value).__name__} under {name!r}, expected a dict of "
                "tensors as written by rsl_rl"
            )
        if not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"{path}: {name} of {key} holds a NaN or Inf; use a checkpoint from before "
                "training diverged"
            )
    return dict(tensors)


def _first_generation(data: dict, who: str, path: str | Path) -> Weights:
    """The part of `model_state_dict` that belongs to `who`, with the names of 4.x."""
    weights = {}
    for name, value in tensors_of(data, "model_state_dict", path).items():
        if who == "actor" and name in ("std", "log_std"):
            weights[name] = value
        for old, new in _FIRST_GENERATION[who]:
            if name.startswith(old):
                weights[new + name.removeprefix(old)] = value
    for key in _OLD_NORMALIZERS[who]:
        if data.get(key) is not None:
            statistics = tensors_of(data, key, path)
            weights |= {f"obs_normalizer.{name}": value for name, value in statistics.items()}
    return weights


def our_weights(tensors: Mapping[str, torch.Tensor]) -> Weights:
    """The weights of a network of 4.x or 5.x with our names and shapes."""
    weights = {_our_name(name): value for name, value in tensors.items()}
    for name in ("normalizer.mean", "normalizer.var", "normalizer.std"):
        if name in weights:
            weights[name] = weights[name].squeeze(0)
    return weights


def _require_all_used(data: dict, path: str | Path) -> None:
    """Refuse a network that rsl_rl does not have, such as an estimator that the actor reads."""
    starts = [old for pairs in _FIRST_GENERATION.values() for old, _ in pairs]
    names = tensors_of(data, "model_state_dict", path)
    strange = [n for n in names if n not in ("std", "log_std") and not n.startswith(tuple(starts))]
    if strange:
        raise ValueError(
            f"{path}: model_state_dict has {strange[0]}, which rsl_rl's actor and critic do not "
            "have; the file is of another program, whose actor may depend on it"
        )


def iteration_of(data: dict, path: str | Path) -> int:
    """The number of iterations that a file names, else 0."""
    if not isinstance(iteration := data.get("iter", 0), int):
        raise ValueError(f"{path}: iter is {iteration!r}, expected the number of iterations")
    return iteration


def _our_name(name: str) -> str:
    for rsl_rl_prefix, prefix in _TO_OURS:
        if name.startswith(rsl_rl_prefix):
            return prefix + name.removeprefix(rsl_rl_prefix)
    return name


def _their_name(name: str) -> str:
    if name == "normalizer.count":
        return "obs_normalizer.count"
    for rsl_rl_prefix, prefix in _TO_OURS:
        if name.startswith(prefix):
            return rsl_rl_prefix + name.removeprefix(prefix)
    return name


def their_weights(state_dict: Mapping[str, torch.Tensor]) -> Weights:
    """The weights of a network (its `state_dict`) with the names and shapes of 5.x."""
    weights = {}
    for name, value in state_dict.items():
        is_statistic = name.startswith("normalizer.") and value.ndim == 1
        weights[_their_name(name)] = value.unsqueeze(0) if is_statistic else value
    return weights


def adam_state(
    networks: Mapping[str, nn.Module],
    tensors: Mapping[str, torch.Tensor],
    frozen: Collection[str] = (),
) -> dict:
    """The state of one Adam for all networks. rsl_rl numbers their parameters consecutively.

    Args:
        networks: By their names in `tensors`, the tensors of our trainer_state/.
        frozen: Parameters that have no state, because they have never had a gradient.
    """
    numbered = [
        (who, name)
        for who, network in networks.items()
        for name in _in_their_order(n for n, _ in network.named_parameters())
    ]
    state = {}
    for index, (who, name) in enumerate(numbered):
        known = {key: tensors.get(f"optimizer/{who}/{key}/{name}") for key in _ADAM}
        if all(value is not None for value in known.values()):
            state[index] = known
    rate = tensors.get("learning_rate")
    group = torch.optim.Adam([torch.zeros(1)]).state_dict()["param_groups"][0]
    group |= {"params": list(range(len(numbered))), "lr": 1e-3 if rate is None else rate.item()}
    # If the state of one parameter is missing, rsl_rl can use none of them.
    is_whole = len(state) == sum(name not in frozen for _, name in numbered)
    return {"state": state if is_whole else {}, "param_groups": [group]}


def _in_their_order(names: Iterable[str]) -> list[str]:
    """rsl_rl creates the standard deviation first, then the layers, then the memory."""
    order = {"std": 0, "log_std": 0, "backbone": 1, "memory": 2}
    return sorted(names, key=lambda name: order[name.partition(".")[0]])


def fitted_network(cfg: StateNetworkCfg, weights: Weights, who: str) -> typing.Any:
    """`cfg` with the layer widths, memory and normaliser of a network's weights."""
    layers = re.compile(r"backbone\.layers\.(\d+)\.weight")
    layer_weights = {
        int(match[1]): weights[name] for name in weights if (match := layers.fullmatch(name))
    }
    if not layer_weights:
        raise ValueError(f"the checkpoint's {who} has no linear layers")
    widths = [layer_weights[index].shape[0] for index in sorted(layer_weights)][:-1]
    changes: dict = {
        "backbone_cfg": plain_mlp(widths, activation(cfg.backbone_cfg, who)),
        "obs_normalization": "normalizer.mean" in weights,
        "memory": None,
    }
    if (recurrent := weights.get("memory.rnn.weight_hh_l0")) is not None:
        gates, width = recurrent.shape
        num_layers = sum("weight_hh_l" in name for name in weights)
        kind = "lstm" if gates == 4 * width else "gru"
        changes["memory"] = {"kind": kind, "hidden_size": width, "num_layers": num_layers}
    return type(cfg).from_dict(cfg.to_dict() | changes)
