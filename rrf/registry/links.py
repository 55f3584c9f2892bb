"""Addresses of MLflow's web pages, and the links in reports.

The pages belong to the server that `MLFLOW_TRACKING_URI` names. For a local store, they belong to
the server that `rrf services up` starts.
"""

from urllib.parse import quote

from rrf import service_records, workspace
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry.versions import find, is_reference
from rrf.runners.run_directory import mlflow_run_of


def mlflow_pages() -> str:
    """The address of MLflow's web UI, without a slash at the end."""
    uri = workspace.tracking_uri()
    if uri.startswith(workspace.SERVERS):
        return uri.rstrip("/")
    return f"http://127.0.0.1:{service_records.port('mlflow')}"


def run_url(run_id: str) -> str:
    """The page of an MLflow run."""
    return f"{mlflow_pages()}/#/runs/{run_id}"


def version_url(name: str, version: str) -> str:
    """The page of a version of a registered model."""
    return f"{mlflow_pages()}/#/models/{quote(name)}/versions/{version}"


def artifact_url(run_id: str, path: str) -> str:
    """The page that shows an artifact of a run."""
    experiment = store.connect().get_run(run_id).info.experiment_id
    return f"{mlflow_pages()}/#/experiments/{experiment}/runs/{run_id}/artifacts/{quote(path)}"


def policy_links(policy: str) -> dict[str, str]:
    """The pages of a policy in MLflow, title -> address.

    For a registered version, these are the version and its run. For a checkpoint in a run
    directory, it is the run. For any other checkpoint the result is empty.

    Args:
        policy: NAME@champion, NAME/3, or a checkpoint directory relative to the workspace.
    """
    if is_reference(policy):
        version = find(policy)
        page = version_url(version.name, version.version)
        return {"version in MLflow": page, "MLflow run": run_url(version.run_id)}
    run_id = mlflow_run_of(workspace.home() / policy)
    return {"MLflow run": run_url(run_id)} if run_id else {}


def report_links(
    run_id: str | None,
    lineage: Lineage,
    flow_run: FlowRun | None = None,
    *,
    is_stored: bool = False,
) -> dict[str, str]:
    """The links of a report: the MLflow run that trained the policy, the Prefect flow run, and the
    dataset cards.

    Args:
        run_id: The id of the MLflow run, if it is known.
        lineage: The lineage of the policy.
        flow_run: The Prefect flow run; by default the one that started this process.
        is_stored: Whether the report will be read in the store of the run, perhaps on another
            machine. Its dataset cards are then those among the artifacts of the run.
    """
    links = {"MLflow run": run_url(run_id)} if run_id else {}
    flow_run = flow_run or FlowRun.from_environment()
    if flow_run and flow_run.url:
        links["Prefect run"] = flow_run.url
    for dataset in lineage.datasets:
        title = f"dataset {dataset.name}" if len(lineage.datasets) > 1 else "dataset"
        if not (card := dataset.card):
            continue
        if "://" in card:
            links[title] = card
        elif run_id and is_stored:
            links[title] = artifact_url(run_id, dataset.card_place(lineage))
        else:
            links[title] = (workspace.home() / card).as_uri()
    return links
