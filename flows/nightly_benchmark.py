"""`nightly-benchmark`: evaluate the champion every night; fail while an alarm is not acknowledged.

No episode is reused, because each night measures what the champion does with today's code,
simulator and machine, always on the same initial states. What counts as an alarm is in
`rrf.evaluation.nightly.series`.

Without a champion, the run ends as Completed under the name NoChampion. Before the first promotion
there is nothing to measure, and people learn to ignore a schedule that fails from the first night
on.
"""

import datetime
import socket
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts, names, notify
from flows.evaluate import ProtocolFile, run_evaluation
from flows.gate import champion_of
from flows.promote import ModelName
from flows.steps import step
from flows.this_run import completed, this_run
from rrf import atomic, workspace
from rrf.evaluation.nightly.series import after_an_alarm
from rrf.evaluation.results import Evaluation
from rrf.registry import links, night_record
from rrf.registry.nights import series_with


@step(name="record", task_run_name="record {model} version {version}")
def record(model: str, version: str, folder: str, night: str) -> str:
    """Store the night in MLflow; returns the id of its run."""
    evaluation, flow_run = Evaluation.load(folder), this_run()
    protocol = evaluation.protocol["name"]
    notes = (
        f"The champion of `{model}`, version {version}, evaluated in the night of {night} under "
        f"protocol `{protocol}`: {evaluation.overall}.\n\n- Prefect flow run: {flow_run or 'none'}"
    )
    key = flow_run.id if flow_run else f"{socket.gethostname()} {night}"
    tags = flow_run.tags() if flow_run else {}
    return night_record.record(model, version, folder, night, key, notes, tags)


@step(name="compare", task_run_name="compare {model} with its promotion and earlier nights")
def compare(model: str, run_id: str, folder: str) -> list[str]:
    """Write the trend page and show the night; returns the alarms that are not acknowledged."""
    series = series_with(model, run_id)
    page = Path(folder).parent / night_record.PAGE
    atomic.write_text(page, night_record.page_of(series))
    night_record.attach(series, run_id, page)
    trend = links.lasting(links.artifact_url(run_id, night_record.PAGE), run_id)
    artifacts.show_night(series, {"trend": trend} | links.run_links(run_id))
    return series.alarms


@flow(
    name="nightly-benchmark",
    flow_run_name=names.of_flow("nightly-benchmark {model} under {protocol}", "protocol"),
    **notify.OF_EVERY_FLOW,
)
def nightly_benchmark(
    model: ModelName = "metaworld-compact",
    protocol: ProtocolFile = "configs/protocols/metaworld-demo.yaml",
):
    """Evaluate the champion, store the night, fail while an alarm is not acknowledged.

    Args:
        model: Name of the model in the registry.
        protocol: File in configs/protocols/.
    """
    champion = champion_of(model)
    if champion is None:
        flow = "train-vla, or of train-locomotion"
        message = f"'{model}' has no champion yet; make one with a run of {flow}"
        return Completed(name="NoChampion", message=message)
    night = _stamp()
    out = workspace.state() / "nightly" / model / night / "evaluation"
    folder = run_evaluation(champion.reference, protocol, out=str(out))
    run_id = record(model, champion.version, folder, night)
    if alarms := compare(model, run_id, folder):
        raise RuntimeError("; ".join([*alarms, after_an_alarm(model)]))
    success = str(Evaluation.load(folder).overall)
    said = f"version {champion.version}: {success}, no alarm"
    return completed(said, {"version": champion.version, "success": success})


def _stamp() -> str:
    started = flow_run.scheduled_start_time or datetime.datetime.now(datetime.UTC)
    return f"{started:%Y-%m-%dT%H%M%SZ}"
