"""The lineage of a policy: the data, the environment and the code that it depends on.

`rrf.registry.lineage_sources` collects it before a training. The checkpoint's manifest holds it as
plain data (`Lineage.to_dict`), MLflow's runs and versions as tags (`Lineage.tags`). What could not
be found is None, and `missing` says what and why; nothing is guessed.
"""

import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path

TAG = "lineage."
"""Prefix of the tags of runs and versions that hold a lineage."""
SYSTEMS = ("system2_checkpoint", "system1_checkpoint", "system0_checkpoint")
"""Facts that name the artifacts of which a robot in three levels was joined."""
REQUIRED = ("dataset_md5", "git_revision", "validation")
REQUIRED_WITHOUT_DATASET = ("environment.task", "environment.config_digest", "git_revision")


@dataclasses.dataclass(frozen=True)
class DatasetLineage:
    """One dataset: its version, what it was made from, and whether it passed validation."""

    name: str
    """As a config names it: a folder of datasets/, a path, or s3://bucket/prefix."""
    md5: str | None = None
    """The MD5 by which DVC knows the version."""
    raw_md5: str | None = None
    """Of the recordings; for a merged dataset, the path and MD5 of each part."""
    validation: typing.Literal["passed", "failed"] | None = None
    validation_digest: str | None = None
    pushed: bool | None = None
    """Whether DVC's default remote has the recordings."""
    num_episodes: int | None = None
    num_frames: int | None = None
    card: str | None = None
    """The path or address of the dataset card."""

    @property
    def path(self) -> str:
        """The path by which DVC knows the dataset."""
        return self.name if "/" in self.name else f"datasets/{self.name}"

    def card_place(self, lineage: "Lineage") -> str:
        """Where the card lies among the artifacts of a run that used the datasets of `lineage`."""
        folder = f"/{Path(self.name).name}" if len(lineage.datasets) > 1 else ""
        return f"dataset{folder}/README.md"


@dataclasses.dataclass(frozen=True)
class EnvironmentLineage:
    """The simulated task that a policy was trained in."""

    task: str | None
    config_digest: str | None = None
    """Of the whole config of the environment."""
    packages: dict[str, str] = dataclasses.field(default_factory=dict)
    """The versions of the installed `rrf.code_digest.SIMULATORS`."""


@dataclasses.dataclass(frozen=True)
class Lineage:
    """What a policy depends on."""

    datasets: tuple[DatasetLineage, ...] = ()
    environment: EnvironmentLineage | None = None
    git_revision: str | None = None
    git_dirty: bool | None = None
    """Whether the code had changes that were not committed."""
    lock_hash: str | None = None
    """SHA-256 of requirements.lock."""
    source_digest: str | None = None
    """Of the code of rrf."""
    parent_checkpoint: str | None = None
    """Digest of the checkpoint that training started from."""
    teacher_checkpoint: str | None = None
    system2_checkpoint: str | None = None
    """Digest of the System 2 that a policy was joined from, as an artifact of its own."""
    system1_checkpoint: str | None = None
    """The same of System 1. The training that it comes from made `parent_checkpoint`."""
    system0_checkpoint: str | None = None
    """Digest of the System 0 that is a part of it."""
    published: dict[str, str | None] | None = None
    """Name, repository and commit of the published policy that training started from."""
    imported_from: dict[str, str] | None = None
    """The file of another project that the policy was converted from, and its SHA-256."""
    advantage: dict[str, str] | None = None
    """The file with the advantage of each frame, and its SHA-256."""
    recorded: tuple[dict[str, typing.Any], ...] = ()
    """The rounds that DAgger has recorded."""
    missing: tuple[str, ...] = ()
    """A sentence for each fact that was not found, with the command that provides it."""

    def replace(self, **changes: typing.Any) -> "Lineage":
        """A copy with other values of some fields."""
        return dataclasses.replace(self, **changes)

    @property
    def dataset_names(self) -> list[str]:
        """The names of the datasets."""
        return [dataset.name for dataset in self.datasets]

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain data without what is empty."""
        data = dataclasses.asdict(self)
        data["datasets"] = [_without_none(dataset) for dataset in data["datasets"]]
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in data.items()}
        return {key: value for key, value in _without_none(plain).items() if value != []}

    @classmethod
    def from_dict(cls, data: Mapping[str, typing.Any], where: str = "the lineage") -> "Lineage":
        """The inverse of `to_dict`, also after a way through JSON.

        Raises:
            ValueError: For a key that a lineage does not have; the message begins with `where`.
        """
        try:
            fields = dict(data)
            fields["datasets"] = tuple(DatasetLineage(**d) for d in fields.get("datasets", ()))
            if environment := fields.get("environment"):
                fields["environment"] = EnvironmentLineage(**environment)
            for name in ("recorded", "missing"):
                fields[name] = tuple(fields.get(name, ()))
            return cls(**fields)
        except TypeError as error:
            raise ValueError(
                f"{where} cannot be read ({error}); it was written by another version of rrf"
            ) from error

    def facts(self) -> dict[str, typing.Any]:
        """One flat mapping for tags and tables, without values that are None or empty.

        Nested facts get dotted keys: environment.task, environment.packages.mujoco. Facts of the
        datasets describe all of them: numbers are added, other values that differ are joined by
        ", ", and a fact that one dataset lacks is left out.
        """
        names = {"name": "dataset", "md5": "dataset_md5", "pushed": "data_pushed"}
        flat: dict[str, typing.Any] = {}
        for field in dataclasses.fields(DatasetLineage) if self.datasets else ():
            values = [getattr(dataset, field.name) for dataset in self.datasets]
            if None not in values:
                flat[names.get(field.name, field.name)] = _joined(values)
        return flat | _flat({k: v for k, v in self.to_dict().items() if k != "datasets"})

    def tags(self) -> dict[str, str]:
        """The facts as tags of a run or a version."""
        return {
            f"{TAG}{key}": value if isinstance(value, str) else json.dumps(value)
            for key, value in self.facts().items()
        }


def facts_in(tags: Mapping[str, str]) -> dict[str, str]:
    """The facts of a lineage in the tags of a run or version, as text."""
    return {key.removeprefix(TAG): tags[key] for key in tags if key.startswith(TAG)}


def lacking(facts: Mapping) -> list[str]:
    """The required facts that a lineage lacks for a promotion.

    Without an environment, or with a dataset, it must name a version of validated data.
    """
    is_of_environment = "environment.task" in facts and "dataset" not in facts
    required = REQUIRED_WITHOUT_DATASET if is_of_environment else REQUIRED
    return [key for key in required if not facts.get(key)]


def _joined(values: list) -> typing.Any:
    if isinstance(values[0], bool):
        return all(values)
    if isinstance(values[0], int):
        return sum(values)
    return ", ".join(dict.fromkeys(values))


def _flat(data: Mapping) -> dict[str, typing.Any]:
    flat: dict[str, typing.Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{part}": item for part, item in _flat(value).items()}
        elif value is not None:
            flat[key] = value
    return flat


def _without_none(data: Mapping) -> dict[str, typing.Any]:
    return {key: value for key, value in data.items() if value is not None}
