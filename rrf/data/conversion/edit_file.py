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
    lists = {part: one for part, one in parts.items() if isinstance(one, list)}
    fractions = {part: one for part, one in parts.items() if part not in lists}
    if fractions and lists:
        raise ValueError("give either a fraction for every part (train=0.8), or episodes (0-79)")
    for (one, mine), (other, theirs) in itertools.combinations(lists.items(), 2):
        both = set(numbers(mine)) & set(numbers(theirs))
        if both:
            raise ValueError(f"episode {min(both)} is in both '{one}' and '{other}'")
    own = {part: {"keep": episodes} for part, episodes in lists.items()}
    own |= {part: {"split": {"parts": fractions, "part": part, "seed": seed}} for part in fractions}
    return _write_edits({f"{name}-{part}": [*steps, last] for part, last in own.items()}, of)


def write_merge(name: str, of: Sequence[str]) -> Path:
    """Write the config of a dataset that is merged from published ones with the same features.

    Raises ValueError listing all differences, if there are any. Nothing is written.
    """
    target = _new_file(name)
    infos = {one: layout.read_info(dataset_paths(load_any_cfg(one)).published) for one in of}
    first, *others = of
    found = [text for other in others for text in differences(infos, first, other)]
    if found:
        listed = "\n".join(f"  {text}" for text in found)
        raise ValueError(
            f"these datasets do not hold the same:\n{listed}\nwrite configs/datasets/{name}.yaml "
            "with merge: yourself, which can align names and fill what is missing; see "
            "docs/how-to/combine-datasets.md"
        )
    told = {one: info.get("provenance") or {} for one, info in infos.items()}
    licences = dict.fromkeys(str(one.get("licence") or "unknown") for one in told.values())
    robots = dict.fromkeys(str(info.get("robot_type") or "unknown") for info in infos.values())
    data = {
        "name": name,
        "merge": [{"dataset": one} for one in of],
        "robot_type": next(iter(robots)) if len(robots) == 1 else "mixed",
        "licence": " AND ".join(licences),
        "provenance": f"Merged from {', '.join(of)}.",
    }
    MergeCfg.from_dict(data)
    _write({target: data})
    return target


def differences(infos: Mapping[str, dict], first: str, other: str) -> list[str]:
    """What two datasets do not have in common, given their info.json, one sentence each."""
    ours, theirs = infos[first], infos[other]
    found = []
    if ours["fps"] != theirs["fps"]:
        found.append(f"{first} has {ours['fps']} frames/s, {other} {theirs['fps']}")
    keys = dict.fromkeys([*ours["features"], *theirs["features"]])
    for key in keys:
        one, two = (info["features"].get(key) for info in (ours, theirs))
        if one is None or two is None:
            found.append(f"only {other if one is None else first} has {key}")
            continue
        found += [
            f"{what} of {key}: {first} {one.get(what)}, {other} {two.get(what)}"
            for what in ("dtype", "shape", "names")
            if one.get(what) != two.get(what)
        ]
        units = [(feature.get("info") or {}).get("unit", "") for feature in (one, two)]
        if units[0] != units[1]:
            found.append(f"unit of {key}: {first} '{units[0]}', {other} '{units[1]}'")
    return found


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
