"""Artifacts of a flow run in Prefect's web UI: evaluations and verdicts as tables and text, with
links to the MLflow run, the registered version and the report.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)

from rrf import workspace
from rrf.envs.rendering.video import preview
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.nightly.series import ALL, together
from rrf.evaluation.protocols.checks import Check
from rrf.evaluation.results import REPORT, Evaluation
from rrf.lineage import Lineage
from rrf.registry import evidence, links, versions
from rrf.registry.nights import Series
from rrf.run_directory import TrainingResult


def show_training(stage: str, target: str, result: TrainingResult) -> None:
    """Link to the MLflow run of a training stage, if it has one."""
    if result.run_id:
        create_link_artifact(
            links.run_url(result.run_id),
            link_text=f"MLflow run of {target}",
            key="mlflow-run",
            description=f"{stage}: {target}, {result.steps} steps; `rrf open {result.run_id}`",
        )


def show_evaluation(evaluation: Evaluation, where: Path, behind: Mapping[str, str]) -> None:
    """Show the success per task with its bounds, the path of the report, and the policy's links."""
    rates = evaluation.per_task | {"all tasks": evaluation.overall}
    rows = [
        {
            "task": task,
            "solved": f"{rate.successes}/{rate.episodes}",
            "rate": round(rate.rate, 3),
            "95 % low": round(rate.low, 3),
            "95 % high": round(rate.high, 3),
        }
        | _means(evaluation, task if task in evaluation.per_task else None)
        for task, rate in rates.items()
    ]
    create_table_artifact(
        table=rows,
        key="evaluation",
        description=f"{evaluation.policy}, protocol {evaluation.protocol['name']}; "
        + ", ".join(_markdown({"report": str(where), **behind})),
    )


def show_video(evaluation: Evaluation, folder: Path) -> None:
    """Show the first video of an evaluation as a small animation, with the folder of all videos."""
    first = folder / evaluation.videos[0]["path"] if evaluation.videos else None
    if first is None or not first.is_file():
        return
    picture = base64.b64encode(preview(first)).decode()
    outcome = "success" if evaluation.videos[0]["success"] else "failure"
    create_image_artifact(
        image_url=f"data:image/webp;base64,{picture}",
        key="video",
        description=f"{evaluation.videos[0]['task']}, {outcome}; all videos: {first.parent}",
    )


def show_verdict(verdict: Verdict, model: str, behind: Mapping[str, str], evaluation: Path) -> None:
    """Show the verdict on a candidate for `model` with its reasons and further links."""
    reasons = "\n".join(f"- {reason}" for reason in verdict.reasons)
    create_markdown_artifact(
        f"# Gate {verdict.gate}: {verdict.outcome}\n\nA candidate for `{model}`. "
        f"Look {verdict.round + 1} of {verdict.rounds}; checkpoint"
        f" `{verdict.checkpoint_digest[:12]}`; champion: {verdict.champion_version or 'none'}"
        f"\n\n{reasons}\n\n{_places(behind, evaluation)}",
        key="gate-verdict",
        description=f"{verdict.gate}: {verdict.outcome}",
    )


def show_version(model: str, version: str, lineage: Lineage, evaluation: Path) -> None:
    """Show a registered version: its page in MLflow, the run it belongs to, its report.

    A checkpoint that was trained a second time, to the same bytes, stays a version of its first
    run, and the report lies there.
    """
    run_id = versions.find(f"{model}/{version}").run_id
    stored = evidence.place(Evaluation.load(evaluation).digest)
    places = links.version_links(model, version) | links.report_links(run_id, lineage)
    page = links.artifact_url(run_id, f"{stored}/{REPORT}")
    places["report in MLflow"] = links.lasting(page, f"{model}/{version}")
    title = f"{model} version {version}"
    create_markdown_artifact(
        f"# {title}\n\n{_places(places, evaluation)}", key="model-version", description=title
    )


def show_champion(model: str, version: str, decision: str) -> None:
    """Link to the page of a version that was promoted."""
    create_link_artifact(
        links.version_url(model, version),
        link_text=f"{model} version {version} in MLflow",
        key="champion",
        description=f"{decision}; `rrf open {model}/{version}`",
    )


def _places(addresses: Mapping[str, str], evaluation: Path) -> str:
    """The links as a list in markdown; the last one is the file of the report."""
    items = _markdown({**addresses, "report": str(evaluation / REPORT)})
    return "\n".join(f"- {item}" for item in items) + "\n"


def _markdown(addresses: Mapping[str, str]) -> list[str]:
    """Links to pages; commands and files, which a browser cannot open, as code."""
    return [
        f"[{title}]({address})"
        if address.startswith(workspace.SERVERS)
        else f"{title}: `{address}`"
        for title, address in addresses.items()
    ]


def _means(evaluation: Evaluation, task: str | None) -> dict[str, float]:
    return {name: round(mean, 4) for name, mean in evaluation.mean_metrics(task).items()}


def show_night(series: Series, behind: Mapping[str, str]) -> None:
    """Show the last night of a champion, what it was compared with, and its alarms."""
    night = series.points[-1].night
    shown = together(night.tasks)[ALL].rate
    lines = [f"success {shown}; {series.reference.what}: {series.levels[ALL].rate}"]
    lines += [*series.alarms, *night.differences, *_markdown(behind)]
    title = "Alarm" if series.is_red else "No alarm" if len(series.points) > 1 else "First night"
    text = "\n".join(f"- {line}" for line in lines)
    create_markdown_artifact(f"# {title}\n\n{text}\n", key="nightly-benchmark", description=title)


def show_matrix(found: Sequence[Check], champions: Mapping[str, tuple[str, str]]) -> None:
    """Show a night: the checks of simulators, and model -> the state and message of its run."""
    rows = [(c.simulator, c.protocol, c.state, " ".join(c.said.split())) for c in found]
    rows += [(name, "", *state) for name, state in champions.items()]
    columns = ("simulator or model", "protocol", "state", "seen")
    table: list[dict] = [dict(zip(columns, row, strict=True)) for row in rows]
    create_table_artifact(table, key="nightly-matrix", description="Simulators and champions")
