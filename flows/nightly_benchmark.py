"""`nightly-benchmark`: evaluate the champion every night; fail if it does worse than before.

No episode is reused, because each night measures what the champion does with today's code,
simulator and machine, always on the same initial states.

Without a champion, the run ends as Completed under the name NoChampion. Before the first promotion
there is nothing to measure, and people learn to ignore a schedule that fails from the first night
on.
"""

import datetime
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts, names
from flows.evaluate import ProtocolFile, run_evaluation
from flows.gate import champion_of
from flows.promote import ModelName
from flows.steps import step
from flows.this_run import this_run
from rrf import workspace
from rrf.evaluation.gates.regression import compare
from rrf.evaluation.results import EvaluationReport


@step(name="record", task_run_name="record {model} version {version}")
def record(model: str, version: str, folder: str) -> None:
    """Write the numbers and files of the night to a separate MLflow run."""
    from rrf.tracking.runs import open_trackers

    report, flow_run = EvaluationReport.load(folder), this_run()
    protocol, night = report.protocol["name"], Path(folder).parent.name
    name = f"{model} version {version}, {protocol}, {night}"
    notes = (
        f"The champion of `{model}`, version {version}, evaluated in the night of {night} under "
        f"protocol `{protocol}`: {report.overall}.\n\n- Prefect flow run: {flow_run or 'none'}"
    )
    tracker = open_trackers(["mlflow"], f"nightly-{model}", name, folder, notes=notes)
    tags = {"model": model, "version": version, "protocol_hash": report.protocol_hash}
    tracker.set_tags(tags | (flow_run.tags() if flow_run else {}))
    tracker.log_metrics(numbers_of(report), step=0)
    tracker.log_artifact(Path(folder) / "evaluation.json")
    tracker.close("FINISHED")


@step(name="compare", task_run_name="compare with last night")
def compare_with_last_night(folder: str) -> list[str]:
    """Compare with the last night under the same protocol; returns what got significantly worse."""
    tonight, before = EvaluationReport.load(folder), last_night(Path(folder))
    if before is None:
        artifacts.show_night("First night", [f"success {tonight.overall}"])
        return []
    comparison = compare(tonight, before)
    title = "Regression" if comparison.regressions else "No regression"
    lines = [f"success {tonight.overall}, last night {before.overall}", *comparison.regressions]
    artifacts.show_night(title, lines)
    return list(comparison.regressions)


@flow(
    name="nightly-benchmark",
    flow_run_name=names.of_flow("nightly-benchmark {model} under {protocol}", "protocol"),
    persist_result=True,
    result_serializer="json",
)
def nightly_benchmark(
    model: ModelName = "metaworld-compact",
    protocol: ProtocolFile = "configs/protocols/metaworld-demo.yaml",
):
    """Evaluate the champion, record the numbers, fail on a significant regression.

    Args:
        model: Name of the model in the registry.
        protocol: File in configs/protocols/.
    """
    champion = champion_of(model)
    if champion is None:
        flow = "train-vla, or of train-locomotion"
        message = f"'{model}' has no champion yet; make one with a run of {flow}"
        return Completed(name="NoChampion", message=message)
    night = workspace.state() / "nightly" / model / _stamp() / "evaluation"
    folder = run_evaluation(champion["policy"], protocol, out=str(night))
    record(model, champion["version"], folder)
    if regressions := compare_with_last_night(folder):
        raise RuntimeError("; ".join(regressions))
    return {"version": champion["version"], "success": str(EvaluationReport.load(folder).overall)}


def last_night(folder: Path) -> EvaluationReport | None:
    """The newest evaluation of an earlier night under the same protocol; None if there is none."""
    protocol_hash = EvaluationReport.load(folder).protocol_hash
    night = folder.parent
    for other in sorted(night.parent.iterdir(), reverse=True):
        if other.name < night.name and (other / folder.name / "evaluation.json").is_file():
            report = EvaluationReport.load(other / folder.name)
            if report.protocol_hash == protocol_hash:
                return report
    return None


def numbers_of(report: EvaluationReport) -> dict[str, float]:
    """The numbers of a report for MLflow: success overall (with bounds) and per task, mean metrics,
    and timings.
    """
    rates = {"success": report.overall}
    rates |= {f"success/{task}": rate for task, rate in report.per_task.items()}
    numbers = {name: rate.rate for name, rate in rates.items()}
    bounds = {"success_low": report.overall.low, "success_high": report.overall.high}
    numbers |= {f"mean/{name}": mean for name, mean in report.mean_metrics().items()}
    return numbers | bounds | {f"timing/{name}": value for name, value in report.timings.items()}


def _stamp() -> str:
    started = flow_run.scheduled_start_time or datetime.datetime.now(datetime.UTC)
    return f"{started:%Y-%m-%dT%H%M%SZ}"
