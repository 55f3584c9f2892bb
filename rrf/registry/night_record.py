"""Store a night: the evaluation of a champion, compared with its reference and the night before.

Unlike the trackers of a training, this waits for the store and fails with it: a night that is not
stored would be missing from the series (`rrf.registry.nights`).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.evaluation.nightly.changes import solved_text
from rrf.evaluation.nightly.differences import differences, outcomes
from rrf.evaluation.nightly.overview import Cell, Row
from rrf.evaluation.nightly.page import trend_page
from rrf.evaluation.nightly.series import counts
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import Evaluation
from rrf.mlflow_store import store
from rrf.mlflow_store.authorship import NOTES, signed
from rrf.registry import evidence, lineage_sources, links, night_changes, nights, versions
from rrf.registry import ledger as ledgers
from rrf.registry.ledger import Ledger
from rrf.registry.nights import COUNTS, LONGEST_TAG, REFERENCE, TAG, Reference, Series
from rrf.registry.speeds import Compared
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE = "trend.html"
_SHOWN = 12


def record(
    model: str,
    version: str,
    folder: str | Path,
    time: str,
    key: str,
    notes: str = "",
    tags: Mapping[str, str] | None = None,
) -> str:
    """Store the evaluation of a night; returns the id of its MLflow run.

    Args:
        model: The registered model.
        version: The version that was evaluated; it is or was champion.
        folder: The directory written by `rrf eval`.
        time: When the night began, for people and for the order of nights; ISO 8601 in UTC.
        key: Identifies the night. Storing the same evaluation under the same key again changes
            nothing.
        notes: The description of the MLflow run.
        tags: More tags of the MLflow run.

    Raises:
        ValueError: If the evaluation is of another checkpoint, or the version never was champion.
        OSError: If the store, or an evaluation to compare with, cannot be read.
    """
    client, evaluation = store.connect(), Evaluation.load(folder)
    champion = versions.find(f"{model}/{version}", client)
    evidence.check_is_of(evaluation, champion.checkpoint_digest)
    reign = nights.reign(model, version)
    earlier = nights.runs_of(client, model, reign, evaluation.protocol_hash)
    for run in earlier:
        if run.data.tags[f"{TAG}key"] == key and run.data.tags[f"{TAG}digest"] == evaluation.digest:
            return run.info.run_id
    name = f"{model} version {version}, {evaluation.protocol['name']}, {time}"
    run_id = client.create_run(
        store.experiment_id(client, nights.experiment_of(model)),
        tags={NOTES: signed(notes)} if notes else {},
        run_name=name,
    ).info.run_id
    facts = {f"{TAG}reign": reign, f"{TAG}time": time, f"{TAG}key": key, **(tags or {})}
    status = "FAILED"
    try:
        _write(client, run_id, champion, Path(folder), evaluation, earlier, facts)
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)
    return run_id


def speed_rows(nights: Sequence[Compared]) -> list[Row]:
    """The nights of trainings as rows of the page of all nights."""
    cells: dict[str, dict[str, Cell]] = {}
    for one in nights:
        night, tone = one.night, "fail" if one.is_low else "pass"
        more = f"{night.time}: {night.steps_per_cpu_s:.4g} steps per CPU second"
        row = cells.setdefault(f"{night.key} on {night.processor}", {})
        row[night.time[:10]] = Cell(f"{100 * one.share:.0f}", tone, more)
    return [Row(title, "", of_day) for title, of_day in cells.items()]


def page_of(series: Series) -> str:
    """The trend page of a series as HTML, with links to the MLflow runs of its nights."""
    runs = [point.night.id for point in series.points]
    addresses = {run: links.lasting(links.run_url(run), run) for run in runs}
    return trend_page(
        f"Nights of {series.title}",
        series.reference.what,
        series.levels,
        series.points,
        series.alarms,
        addresses,
        night_changes.told(series),
    )


def attach(series: Series, run_id: str, page: str | Path) -> None:
    """Add the trend page, and where the rules stand, to the run of a night of a series."""
    client = store.connect()
    client.log_artifact(run_id, str(page))
    statistics = series.points[-1].statistics
    store.log_numbers(client, run_id, {f"cusum/{name}": v for name, v in statistics.items()})
    client.set_tag(run_id, f"{TAG}state", "red" if series.is_red else "green")


def _write(
    client: "MlflowClient",
    run_id: str,
    champion: Version,
    folder: Path,
    evaluation: Evaluation,
    earlier: "list[Run]",
    facts: Mapping[str, str],
) -> None:
    if earlier:
        reference = nights.next_reference(earlier)
    else:
        reference = _at_promotion(ledgers.read(client, champion.name), champion, evaluation)
    compared_with = [reference] if reference else []
    reference = reference or Reference("the first night", run_id, evaluation.digest)
    if earlier and (last := nights.night_of(earlier[-1])).run_id != reference.run_id:
        compared_with.append(last)
    loaded = [
        evidence.download(client, dataclasses.replace(champion, run_id=night.run_id), night.digest)
        for night in compared_with
    ]
    sentences = [
        differences(evaluation, earlier_evaluation).in_words(night.what)
        for night, earlier_evaluation in zip(compared_with, loaded, strict=True)
    ]
    store.log_numbers(
        client,
        run_id,
        evidence.numbers(evaluation) | _counted(evaluation, loaded[0] if loaded else evaluation),
    )
    evidence.store(client, dataclasses.replace(champion, run_id=run_id), folder, evaluation.digest)
    tags = {
        "model": champion.name,
        "version": champion.version,
        "checkpoint_digest": evaluation.checkpoint_digest,
        "protocol_hash": evaluation.protocol_hash,
        f"{TAG}protocol": str(evaluation.protocol["name"]),
        f"{TAG}digest": evaluation.digest,
        f"{TAG}outcomes": json.dumps([o[:_SHOWN] for _, o in sorted(outcomes(evaluation).items())]),
        f"{TAG}reference": json.dumps(dataclasses.asdict(reference)),
        f"{TAG}differences": json.dumps(sentences),
        **_code_and_data(),
    }
    ordered = sorted(evaluation.episodes, key=lambda e: (e.task, e.seed, e.index))
    if len(solved := solved_text([episode.success for episode in ordered])) <= LONGEST_TAG:
        tags[f"{TAG}solved"] = solved
    for key, value in {**tags, **facts}.items():
        client.set_tag(run_id, key, value)


def _code_and_data() -> dict[str, str]:
    """The workspace's commit and the versions of its datasets, for tags."""
    commit, is_dirty = lineage_sources.commit(workspace.home())
    data = json.dumps(lineage_sources.dataset_versions(workspace.home()))
    facts = {f"{TAG}commit": commit or "", f"{TAG}dirty": str(is_dirty)}
    return facts | ({f"{TAG}data": data} if len(data) <= LONGEST_TAG else {})


def _at_promotion(ledger: Ledger, champion: Version, evaluation: Evaluation) -> Reference | None:
    """The evaluation that is stored with a version and has all initial states of this one."""
    protocol = parse_protocol(evaluation.protocol)
    long_enough = [
        stored
        for stored in ledger.evaluations(champion.version)
        if stored.base_hash == protocol.base_hash
        and stored.episodes_per_task >= protocol.episodes_per_task
    ]
    if not long_enough:
        return None
    best = max(long_enough, key=lambda e: (e.against is not None, e.episodes_per_task, e.digest))
    return Reference("the evaluation at promotion", champion.run_id, best.digest)


def _counted(evaluation: Evaluation, reference: Evaluation) -> dict[str, float]:
    """The counts of each task as metrics."""
    reference_solved, metrics = reference.successes, {}
    for task, count in counts(evaluation, reference).items():
        states = [e.initial_state for e in evaluation.episodes if e.task == task]
        metrics |= {f"{name}/{task}": getattr(count, name) for name in COUNTS}
        metrics[f"{REFERENCE}/{task}"] = sum(reference_solved[state] for state in states)
    return metrics
