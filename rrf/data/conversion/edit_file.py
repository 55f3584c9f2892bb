"""Writes `configs/datasets/NAME.yaml` for a dataset that is edited, split or merged from others.

The datasets themselves are then made as all are: converted, validated, published.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from rrf import atomic, workspace
from rrf.config import first_error, read_yaml
from rrf.data.conversion.dataset_cfg import (
    MergeCfg,
    check_dataset_name,
    dataset_paths,
    load_any_cfg,
)
from rrf.data.conversion.edit import plan_edit
from rrf.data.conversion.edit_cfg import EditCfg, StepCfg, numbers
from rrf.data.conversion.edit_plan import EditPlan
from rrf.data.dataset import layout

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_edit(name: str, of: str, steps: Sequence[Mapping]) -> tuple[Path, EditPlan]:
    """Write the config of a dataset that is edited from another.

    Args:
        name: The new dataset.
        of: The dataset that is edited; it must have been converted.
        steps: What is done, in order, as in a config file.

    Returns:
        The file, and what the dataset will hold.

    Raises:
        ValueError: If there is a dataset of this name, or a step does not fit. Nothing is written.
    """
    ((path, plan),) = _write_edits({name: list(steps)}, of)
    return path, plan


def write_split(
    name: str,
    of: str,
    steps: Sequence[Mapping],
    parts: Mapping[str, float | list[int | str]],
    seed: int = 0,
) -> list[tuple[Path, EditPlan]]:
    """Write the configs of the parts of a dataset, each called NAME-PART.

    Args:
        name: What the names of the new datasets begin with.
        of: The dataset that is split; it must have been converted.
        steps: What is done to every part before, in order.
        parts: Part -> its fraction of the episodes, or its episodes.
        seed: Seed of the order in which episodes are dealt, if there are fractions.

    Returns:
        The file of each part, and what it will hold.

    Raises:
        ValueError: As `write_edit`, if an episode is in two parts, or if some parts are fractions
            and others are lists.
    """
    lists = {part: chosen for part, chosen in parts.items() if isinstance(chosen, list)}
    fractions = {part: chosen for part, chosen in parts.items() if part not in lists}
    if fractions and lists:
        raise ValueError("give either a fraction for every part (train=0.8), or episodes (0-79)")
    for (first, episodes), (second, other_episodes) in itertools.combinations(lists.items(), 2):
        both = set(numbers(episodes)) & set(numbers(other_episodes))
        if both:
            raise ValueError(f"episode {min(both)} is in both '{first}' and '{second}'")
    last_steps = {part: {"keep": episodes} for part, episodes in lists.items()}
    last_steps |= {
        part: {"split": {"parts": fractions, "part": part, "seed": seed}} for part in fractions
    }
    return _write_edits({f"{name}-{part}": [*steps, last] for part, last in last_steps.items()}, of)


def write_merge(name: str, of: Sequence[str]) -> Path:
    """Write the config of a dataset that is merged from published ones with the same features.

    Raises ValueError listing all differences, if there are any. Nothing is written.
    """
    target = _new_file(name)
    infos = {
        dataset: layout.read_info(dataset_paths(load_any_cfg(dataset)).published) for dataset in of
    }
    first, *others = of
    problems = [text for other in others for text in differences(infos, first, other)]
    if problems:
        listed = "\n".join(f"  {text}" for text in problems)
        raise ValueError(
            f"these datasets do not hold the same:\n{listed}\nwrite configs/datasets/{name}.yaml "
            "with merge: yourself, which can align names and fill what is missing; see "
            "docs/how-to/combine-datasets.md"
        )
    provenances = {dataset: info.get("provenance") or {} for dataset, info in infos.items()}
    licences = dict.fromkeys(
        str(dataset.get("licence") or "unknown") for dataset in provenances.values()
    )
    robots = dict.fromkeys(str(info.get("robot_type") or "unknown") for info in infos.values())
    data = {
        "name": name,
        "merge": [{"dataset": dataset} for dataset in of],
        "robot_type": next(iter(robots)) if len(robots) == 1 else "mixed",
        "licence": " AND ".join(licences),
        "provenance": f"Merged from {', '.join(of)}.",
    }
    MergeCfg.from_dict(data)
    _write({target: data})
    return target


def differences(infos: Mapping[str, dict], first: str, other: str) -> list[str]:
    """What two datasets do not have in common, given their info.json, one sentence each."""
    first_info, other_info = infos[first], infos[other]
    problems = []
    if first_info["fps"] != other_info["fps"]:
        problems.append(f"{first} has {first_info['fps']} frames/s, {other} {other_info['fps']}")
    keys = dict.fromkeys([*first_info["features"], *other_info["features"]])
    for key in keys:
        first_feature, other_feature = (
            info["features"].get(key) for info in (first_info, other_info)
        )
        if first_feature is None or other_feature is None:
            problems.append(f"only {other if first_feature is None else first} has {key}")
            continue
        problems += [
            f"{what} of {key}: {first} {first_feature.get(what)}, {other} {other_feature.get(what)}"
            for what in ("dtype", "shape", "names")
            if first_feature.get(what) != other_feature.get(what)
        ]
        units = [
            (feature.get("info") or {}).get("unit", "")
            for feature in (first_feature, other_feature)
        ]
        if units[0] != units[1]:
            problems.append(f"unit of {key}: {first} '{units[0]}', {other} '{units[1]}'")
    return problems


def _write_edits(edits: Mapping[str, list[Mapping]], of: str) -> list[tuple[Path, EditPlan]]:
    targets = {name: _new_file(name) for name in edits}
    root = dataset_paths(load_any_cfg(of)).converted
    checks = read_yaml(workspace.configs("datasets")[of]).get("checks")
    written, plans = {}, []
    for name, steps in edits.items():
        data = {"name": name, "edit_of": of, "steps": steps}
        try:
            cfg = EditCfg.from_dict(data | ({"checks": checks} if checks else {}))
        except ValueError as error:
            raise ValueError(f"{name}: {first_error(error)}") from error
        plans.append(plan_edit(cfg.steps, root))
        plain: list[dict] = [StepCfg.plain(step) for step in cfg.steps]
        written[targets[name]] = data | {"steps": plain} | ({"checks": checks} if checks else {})
    _write(written)
    return list(zip(written, plans, strict=True))


def _new_file(name: str) -> Path:
    path = _folder() / f"{name}.yaml"
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no name of a dataset; use letters, digits, '.', '_' and '-'")
    check_dataset_name(name, name)
    if path.exists():
        raise ValueError(f"there is a dataset '{name}' already ({path}); give another name")
    return path


def _write(files: Mapping[Path, Mapping]) -> None:
    for path, data in files.items():
        # short lists and mappings on one line
        text = yaml.safe_dump(
            dict(data), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
        )
        atomic.write_text(path, text)


def _folder() -> Path:
    return workspace.home() / "configs" / "datasets"
