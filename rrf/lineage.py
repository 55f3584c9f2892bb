"""The lineage of a policy: the data, the code and the packages that it depends on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

REQUIRED = ("dataset_md5", "git_revision", "validation")
REQUIRED_WITHOUT_DATASET = ("environment.task", "environment.config_digest", "git_revision")
TAG = "lineage."
"""Prefix of the tags of runs and versions that hold a lineage."""
_PARTS = "datasets"


def each(lineage: Mapping) -> list[Mapping]:
    """The lineages of the single datasets in a lineage from `collect_lineage`."""
    return lineage.get(_PARTS) or ([lineage] if lineage.get("dataset") else [])


def card_place(dataset: Mapping, datasets: Sequence[Mapping]) -> str:
    """Where the card of one of the datasets of a run lies among the artifacts of the run."""
    name = f"/{Path(dataset['dataset']).name}" if len(datasets) > 1 else ""
    return f"dataset{name}/README.md"


def datasets_of(lineage: Mapping) -> list[str]:
    """The datasets that a lineage from `collect_lineage` describes."""
    return [one["dataset"] for one in each(lineage)]


def flat(lineage: Mapping) -> dict:
    """A lineage as a flat mapping for tags, without values that are None.

    Nested mappings get dotted keys: environment.task, environment.packages.mujoco. The lineages of
    single datasets are left out.
    """
    found: dict = {}
    for key, value in lineage.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{part}": item for part, item in flat(value).items()}
        elif value is not None and key != _PARTS:
            found[key] = value
    return found


def lacking(facts: Mapping) -> list[str]:
    """The required keys that a flat lineage lacks for a promotion.

    Without an environment, or with a dataset, it must name a version of validated data.
    """
    is_of_environment = "environment.task" in facts and "dataset" not in facts
    required = REQUIRED_WITHOUT_DATASET if is_of_environment else REQUIRED
    return [key for key in required if not facts.get(key)]


def dvc_path(dataset: str) -> str:
    """The path by which DVC knows a dataset that is given by name or path."""
    return dataset if "/" in dataset else f"datasets/{dataset}"


def facts_in(tags: Mapping[str, str]) -> dict[str, str]:
    """The flat lineage in the tags of a run or version."""
    return {key.removeprefix(TAG): tags[key] for key in tags if key.startswith(TAG)}
