"""Several policies side by side: configs, data, code, success, curves, videos; as text and a page.

A policy is a version of a model, a run or checkpoint on this machine, or the folder of an
evaluation. Of a version everything comes from the registry; of the others, what lies beside them.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrf import workspace
from rrf.config import readable
from rrf.evaluation.comparison import ALL, PairTest, pair_tests, same_conditions
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import FILE_NAME, Evaluation
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.dvc_dataset import directory_md5
from rrf.pages.charts import Curve
from rrf.registry import changes, evidence, versions
from rrf.registry.client import connect
from rrf.registry.lineage_sources import git
from rrf.registry.reproduction_plan import has_commit
from rrf.run_directory import mlflow_run_of
from rrf.runners.checkpoints import checkpoint as checkpoints
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage

_MOST_FILES = 40
_ABSENT = "–"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A policy that is compared."""

    name: str
    config: dict[str, Any]
    lineage: Lineage
    evaluations: list[tuple[Evaluation, Path | None]]
    """Each with its folder, if it is here."""
    run_id: str | None = None


@dataclasses.dataclass(frozen=True)
class Trial:
    """Evaluations of several policies under the same conditions."""

    protocol: str
    evaluations: dict[str, Evaluation]
    folders: dict[str, Path]
    tests: list[PairTest]

    @property
    def tasks(self) -> list[str]:
        """Their tasks, in the order of the protocol."""
        return list(dict.fromkeys(t for each in self.evaluations.values() for t in each.per_task))

    @property
    def metrics(self) -> dict[str, list[str]]:
        """Metric and unit -> its mean over the episodes of each policy."""
        units = parse_protocol(next(iter(self.evaluations.values())).protocol).measures
        means = [evaluation.mean_metrics() for evaluation in self.evaluations.values()]
        return {
            f"{name} ({unit})": [f"{each[name]:.4g}" if name in each else _ABSENT for each in means]
            for name, unit in units.items()
            if any(name in each for each in means)
        }


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is different between policies."""

    names: list[str]
    config: dict[str, list[str]]
    """Dotted field -> its value in each config; fields that are equal in all are left out."""
    data: dict[str, list[str]]
    episodes: list[str]
    """Sentences about the episodes of datasets that are here."""
    code: dict[str, list[str]]
    files: dict[str, list[str]]
    """Pair of commits -> files that differ between them."""
    trials: list[Trial]
    curves: dict[str, dict[str, Curve]]
    """Metric -> name -> curve."""


def compare(subjects: Sequence[Subject]) -> Comparison:
    """Compare policies.

    Raises:
        ValueError: For fewer than two, or two of one name.
    """
    names = [subject.name for subject in subjects]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"name two or more different policies; there is {', '.join(names)}")
    return Comparison(
        names,
        _differing([flat(subject.config) for subject in subjects]),
        _differing([_data(subject.lineage) for subject in subjects]),
        _episodes(subjects),
        _differing([_code(subject.lineage) for subject in subjects]),
        _files([subject.lineage.git_revision for subject in subjects]),
        _trials(subjects),
        _curves(subjects),
    )


def subject(reference: str) -> Subject:
    """The policy that a user names: NAME@alias, NAME/3, a run, a checkpoint or an evaluation.

    Raises:
        ValueError: If there is no such thing.
    """
    if versions.is_reference(reference):
        return _of_version(reference)
    folder = Path(reference)
    if (folder / FILE_NAME).is_file():
        return Subject(reference, {}, Lineage(), [(Evaluation.load(folder), folder)])
    path = checkpoints.find(folder)
    digest = deployable_digest(path)
    known = _evaluations_here(digest)
    return Subject(
        reference, checkpoints.load_config(path), load_lineage(path), known, mlflow_run_of(path)
    )


def _of_version(reference: str) -> Subject:
    from rrf.registry import loading

    client = connect()
    version = versions.find(reference, client)
    name = f"{version.name}/{version.version}"
    path = loading.fetched(version)
    ledger = changes.agreed(client, version.name)
    here = {
        evaluation.digest: folder
        for evaluation, folder in _evaluations_here(version.checkpoint_digest)
    }
    evaluations = []
    for stored in {each.digest: each for each in ledger.evaluations(version.version)}.values():
        evaluation = evidence.load(client, version, stored)
        evaluations.append((evaluation, here.get(evaluation.digest)))
    lineage = load_lineage(path)
    return Subject(name, checkpoints.load_config(path), lineage, evaluations, version.run_id)


def _evaluations_here(digest: str) -> list[tuple[Evaluation, Path | None]]:
    """The evaluations of a checkpoint in this workspace."""
    files = sorted((workspace.state() / "evaluations").glob(f"*/{FILE_NAME}"))
    loaded = readable(files, Evaluation.load)
    return [(e, file.parent) for file, e in loaded.items() if e.checkpoint_digest == digest]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The leaves of a config by their dotted names, as text."""
    leaves: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = str(value)
    return leaves


def _differing(facts: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Key -> its value in each, for keys whose values are not all equal."""
    keys = dict.fromkeys(key for each in facts if each for key in each)
    rows = {key: [each.get(key, _ABSENT) for each in facts] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def _data(lineage: Lineage) -> dict[str, str]:
    facts: dict[str, str] = {}
    for dataset in lineage.datasets:
        facts[f"{dataset.name}, version"] = dataset.md5 or "unknown"
        facts[f"{dataset.name}, episodes"] = str(dataset.num_episodes)
        facts[f"{dataset.name}, frames"] = str(dataset.num_frames)
    if lineage.environment:
        facts["environment"] = str(lineage.environment.task)
        facts["environment, config"] = (lineage.environment.config_digest or "unknown")[:12]
    return facts


def _code(lineage: Lineage) -> dict[str, str]:
    facts = {
        "commit": (lineage.git_revision or "unknown")[:12],
        "uncommitted changes": str(lineage.git_dirty),
        "code of rrf": (lineage.source_digest or "unknown")[:12],
        "requirements.lock": (lineage.lock_hash or "unknown")[:12],
    }
    packages = lineage.environment.packages if lineage.environment else {}
    return facts | dict(packages)


def _episodes(subjects: Sequence[Subject]) -> list[str]:
    """What is different between the datasets of the policies that are here."""
    from rrf.data.validation.diff import diff_datasets

    places: dict[tuple[str, str], Path] = {}
    for each in subjects:
        for dataset in each.lineage.datasets:
            if dataset.md5 and (place := _place(dataset.name, dataset.md5)):
                places[(dataset.name, dataset.md5)] = place
    sentences = []
    for one, other in itertools.combinations(places, 2):
        diff = diff_datasets(places[one], places[other], with_images=False)
        removed, added = ([e.number for e in each] for each in (diff.removed, diff.added))
        changed = [change.before.number for change in diff.changed]
        parts = {"only in the first": removed, "only in the second": added, "changed": changed}
        said = [f"{len(each)} {how} ({_some(each)})" for how, each in parts.items() if each]
        names = " and ".join(f"{name}@{md5[:8]}" for name, md5 in (one, other))
        same = f"{len(diff.same)} episodes are the same"
        sentences.append(f"{names}: {'; '.join([same, *said])}")
    return sentences


def _place(name: str, md5: str) -> Path | None:
    """Where a version of a dataset is on this machine."""
    brought = workspace.state() / "datasets" / md5
    if brought.is_dir():
        return brought
    place = workspace.dataset(name)
    if isinstance(place, Path) and (place / "meta/info.json").is_file():
        return place if directory_md5(place) == md5 else None
    return None


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown}, …" if len(numbers) > 10 else shown


def _files(commits: Sequence[str | None]) -> dict[str, list[str]]:
    known = [commit for commit in dict.fromkeys(commits) if commit]
    found = {}
    for one, other in itertools.combinations(known, 2):
        pair = f"{one[:12]} → {other[:12]}"
        home = workspace.home()
        if not (has_commit(home, one) and has_commit(home, other)):
            found[pair] = ["one of these commits is not in this repository"]
            continue
        listed = git(home, "diff", "--name-status", one, other, "--") or ""
        lines = [" ".join(line.split("\t")) for line in listed.splitlines()]
        more = [f"and {len(lines) - _MOST_FILES} more"] if len(lines) > _MOST_FILES else []
        found[pair] = lines[:_MOST_FILES] + more
    return found


def _trials(subjects: Sequence[Subject]) -> list[Trial]:
    """The conditions under which at least two policies were evaluated, most policies first."""
    best: dict[str, dict[str, tuple[Evaluation, Path | None]]] = {}
    for each in subjects:
        for evaluation, folder in each.evaluations:
            known = best.setdefault(same_conditions(evaluation), {})
            other = known.get(each.name)
            if other is None or len(evaluation.episodes) > len(other[0].episodes):
                known[each.name] = evaluation, folder
    trials = []
    for found in best.values():
        if len(found) > 1:
            evaluations = {name: evaluation for name, (evaluation, _) in found.items()}
            folders = {name: folder for name, (_, folder) in found.items() if folder}
            protocol = str(next(iter(evaluations.values())).protocol["name"])
            trials.append(Trial(protocol, evaluations, folders, pair_tests(evaluations)))
    return sorted(trials, key=lambda trial: -len(trial.evaluations))


def _curves(subjects: Sequence[Subject]) -> dict[str, dict[str, Curve]]:
    """The curves that at least two runs have."""
    from mlflow.exceptions import MlflowException

    curves: dict[str, dict[str, Curve]] = {}
    for each in subjects:
        if each.run_id:
            try:
                history = store.metric_history(each.run_id)
            except MlflowException:  # deleted, or of another store
                continue
            for metric, curve in history.items():
                if len(curve) > 1:
                    curves.setdefault(metric, {})[each.name] = curve
    return {metric: found for metric, found in curves.items() if len(found) > 1}


def text(comparison: Comparison) -> str:
    """The comparison for a terminal."""
    lines: list[str] = []
    for title, rows in (
        ("config", comparison.config), ("data", comparison.data), ("code", comparison.code)
    ):  # fmt: skip
        lines.append(f"{title}: {'' if rows else 'the same'}".rstrip())
        lines += [f"  {key}: {' | '.join(values)}" for key, values in rows.items()]
    lines += [f"  {sentence}" for sentence in comparison.episodes]
    for pair, files in comparison.files.items():
        lines += [f"  {pair}: {len(files)} files differ"]
    for trial in comparison.trials:
        lines.append(f"success under protocol {trial.protocol}:")
        for name, evaluation in trial.evaluations.items():
            lines.append(f"  {name}: {evaluation.overall}")
            lines += [f"    {task}: {rate}" for task, rate in evaluation.per_task.items()]
        lines += [f"  {metric}: {' | '.join(means)}" for metric, means in trial.metrics.items()]
        lines += [f"  {_sentence(test)}" for test in trial.tests if _is_shown(test)]
    if not comparison.trials:
        lines.append(
            "success: no two of them were evaluated under the same protocol; do it with: "
            "rrf eval POLICY --protocol FILE"
        )
    return "\n".join(lines)


def _is_shown(test: PairTest) -> bool:
    return test.task == ALL or test.is_significant


def _sentence(test: PairTest) -> str:
    difference, low, high = test.difference
    says = "differ" if test.is_significant else "may be equal"
    return (
        f"{test.second} - {test.first}, {test.task}: {difference:+.3f} [{low:+.3f}, {high:+.3f}], "
        f"{test.wins} won and {test.losses} lost of {test.pairs}, p {test.p_value:.2g}, by Holm "
        f"{test.adjusted:.2g}: they {says}"
    )
