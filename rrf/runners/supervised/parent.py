"""What a run takes over from the policy that it starts from: its family, robots and statistics.

Weights are only valid with the normalisation with which they were trained, so a robot that the
parent knows keeps its statistics; a new robot has those of its datasets, with floors under them.
"""

import json
import shlex
import typing
import warnings
from collections.abc import Mapping
from pathlib import Path

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.dataset.floors import with_floors
from rrf.data.dataset.predicted_stats import with_predicted
from rrf.data.schema import ACTION, STATE
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.robot_configs import RobotCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners import process_group
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import Split

_MEANING = (
    *("state_normalization", "action_normalization", "state_modes", "action_modes"),
    *("relative_actions", "delta_actions", "head.min_period", "head.max_period"),
)


def with_parent_robots(cfg: SupervisedRunnerCfg) -> SupervisedRunnerCfg:
    """A copy whose policy also knows the robots of the policy in `init_from`.

    Raises:
        ValueError: If that policy knows several robots, and the config does not say which one the
            dataset is of.
    """
    policy = cfg.policy
    if cfg.init_from is None or not isinstance(policy, VLMPolicyCfg):
        return cfg
    saved = _policy_of(checkpoint.find(cfg.init_from))
    if saved is None or not saved.robots:
        return cfg
    robots = saved.robots | policy.robots
    if cfg.robots:
        return cfg.replace(policy=policy.replace(robots=robots))
    tag = policy.embodiment or saved.embodiment
    if tag is None:
        raise ValueError(
            f"init_from={cfg.init_from} was trained on several robots ({', '.join(robots)}); say "
            "which one the dataset is of: policy.embodiment=TAG, one of these or a new one"
        )
    robots = robots if tag in robots else {**robots, tag: RobotCfg()}
    return cfg.replace(policy=policy.replace(robots=robots, embodiment=tag))


def policy_of_family(parent: Path, policy: PolicyCfg) -> PolicyCfg:
    """The config of the policy in a checkpoint, which must be of the family of `policy`.

    Raises:
        ValueError: If it is of another class, or has another backbone.
    """
    saved = PolicyCfg.from_dict(checkpoint.load_config(parent)["policy"])
    if (parent_family := _family(saved)) != (family := _family(policy)):
        raise ValueError(
            f"{parent} holds a {parent_family}, but the policy to train is a {family}; give a "
            "checkpoint of the same family as init_from"
        )
    if differences := meaning_differences(saved, policy):
        given = as_typed(differences)
        raise ValueError(
            f"the weights in {parent} mean something else with this policy, which differs in "
            f"{', '.join(differences)}; add: {given}"
        )
    return saved


def meaning_differences(trained: PolicyCfg, policy: PolicyCfg) -> dict[str, typing.Any]:
    """What decides what the numbers within a policy mean, where a policy differs from the one whose
    weights it gets: dotted path -> the value with which the weights were trained."""
    pairs = {path: (_at(trained, path), _at(policy, path)) for path in _MEANING}
    return {f"policy.{path}": old for path, (old, new) in pairs.items() if old != new}


def _at(policy: PolicyCfg, path: str) -> typing.Any:
    value: typing.Any = policy
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def as_typed(overrides: Mapping[str, typing.Any]) -> str:
    """Overrides as they are typed on a command line."""
    return " ".join(shlex.quote(f"{path}={json.dumps(v)}") for path, v in overrides.items())


def warn_of_other_inputs(parent: Path, policy: PolicyCfg) -> None:
    """Say where a run would prepare images, instructions or states unlike its parent."""
    saved = _policy_of(parent)
    if saved is None or not isinstance(policy, VLMPolicyCfg):
        return
    pair = [_preparation(each) for each in (saved, policy)]
    if lines := checkpoint.config_differences(*pair):
        warnings.warn(
            f"{parent} was trained with other inputs: {'; '.join(lines)} (parent -> this run). "
            "Give the parent's if this is not meant",
            stacklevel=2,
        )


def _preparation(policy: VLMPolicyCfg) -> dict:
    data, backbone = policy.to_dict(), policy.backbone.to_dict()
    fields = ("prompt", "clips_state", "clips_actions")
    of_backbone = {f"backbone.{n}": backbone[n] for n in ("image", "instructions") if n in backbone}
    return {f"policy.{n}": data[n] for n in fields} | {
        f"policy.{n}": value for n, value in of_backbone.items()
    }


def statistics(cfg: SupervisedRunnerCfg, split: Split, parent: Path | None) -> Mapping:
    """The statistics with which a run normalises, those of several robots by tag.

    What is not the parent's has the floors of `cfg`; a warning names what they raised.
    """
    schema = split.training.schema
    names = {STATE: schema.state.names, ACTION: schema.action.names}
    published = split.norm_stats or split.training.norm_stats
    own: dict[str, dict] = {}
    raised: dict[str, list[str]] = {}
    for tag, of_robot in ({"": published} if STATE in published else published).items():
        own[tag], raised[tag] = with_floors(of_robot, cfg.floors, names)
    stats: Mapping = own.get("", own)
    if parent is not None:
        stats = inherited(cfg.policy, stats, parent)
    lines = [
        f"{tag}: {line}" if tag else line
        for tag in own
        if own[tag] is stats or own[tag] is stats.get(tag)
        for line in raised[tag]
    ]
    predicted = with_predicted(stats, cfg.policy.representation, split.training)
    if predicted is not stats:
        stats, added = with_floors(predicted, cfg.floors, {PREDICTED: schema.action.names})
        lines += added
    if lines and not process_group.rank():
        warnings.warn(
            f"nearly constant or rarely moving dimensions: {'; '.join(lines)}. To change it: "
            "floors.relative, floors.absolute, policy.state_modes, policy.action_modes",
            stacklevel=2,
        )
    return stats


def inherited(policy: PolicyCfg, own_stats: Mapping, parent: Path) -> Mapping:
    """The statistics to normalise with in a run that starts from `parent`.

    Args:
        policy: The policy of the run.
        own_stats: The statistics of its datasets, those of several robots by tag.
        parent: The checkpoint.
    """
    parent_stats, saved = checkpoint.load_norm_stats(parent), _policy_of(parent)
    if not isinstance(policy, VLMPolicyCfg) or not policy.robots:
        return parent_stats
    by_tag = {}
    if saved is not None and saved.robots:
        by_tag = parent_stats if saved.is_shared else {saved.embodiment: parent_stats}
    if policy.embodiment is not None:
        return by_tag.get(policy.embodiment, own_stats)
    return {tag: by_tag[tag] if tag in by_tag else own_stats[tag] for tag in policy.robots}


def _family(policy: PolicyCfg) -> str:
    backbone = getattr(policy, "backbone", None)
    return type(policy).__name__ + (f" with {type(backbone).__name__}" if backbone else "")


def _policy_of(parent: Path) -> VLMPolicyCfg | None:
    policy = PolicyCfg.from_dict(checkpoint.load_config(parent)["policy"])
    return policy if isinstance(policy, VLMPolicyCfg) else None
