"""Addresses of MLflow's and Prefect's web pages, and the links in reports.

The pages belong to the servers that `MLFLOW_TRACKING_URI` and `PREFECT_API_URL` name. Without them,
they belong to the servers that `rrf services up` starts; such an address is true on one machine and
until another port is chosen. Therefore what is kept has `rrf open ...` in its place, which looks
the address up.
"""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from rrf import service_records, workspace
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry.versions import find, is_reference
from rrf.run_directory import mlflow_run_of

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_FLOW_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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


def prefect_pages() -> str:
    """The address of Prefect's web UI, without a slash at the end."""
    api = workspace.split_login(os.environ.get("PREFECT_API_URL") or "")[0]
    if api.startswith(workspace.SERVERS):
        return api.rstrip("/").removesuffix("/api")
    return f"http://127.0.0.1:{service_records.port('prefect')}"


def flow_run_url(flow_run_id: str) -> str:
    """The page of a flow run of Prefect."""
    return f"{prefect_pages()}/runs/flow-run/{flow_run_id}"


def lasting(address: str, what: str) -> str:
    """What a record can keep of an address: a server's own, or for one of this machine the command
    that looks it up.

    Args:
        address: The address of a page.
        what: What the page is about, as `rrf open` takes it.
    """
    return f"rrf open {what}" if is_local(address) else address


def is_local(address: str) -> bool:
    """Whether an address is one of this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def page_of(what: str) -> str:
    """The address of a page today.

    Args:
        what: NAME@alias, NAME/3, the id of an MLflow run or of a Prefect flow run, a run
            directory, or a checkpoint in one.

    Raises:
        ValueError: It is none of these, or the version does not exist.
    """
    if _RUN_ID.fullmatch(what):
        return run_url(what)
    if _FLOW_RUN_ID.fullmatch(what):
        return flow_run_url(what)
    if (workspace.home() / what).exists():
        if run_id := mlflow_run_of(workspace.home() / what):
            return run_url(run_id)
        raise ValueError(f"{what} was trained without MLflow, so it has no page")
    if is_reference(what):
        version = find(what)
        return version_url(version.name, version.version)
    raise ValueError(
        f"'{what}' has no page; give NAME@champion, NAME/3, a run directory, or the id of an "
        "MLflow run or of a Prefect flow run"
    )


def artifact_url(run_id: str, path: str) -> str:
    """The page that shows an artifact of a run."""
    experiment = store.connect().get_run(run_id).info.experiment_id
    return f"{mlflow_pages()}/#/experiments/{experiment}/runs/{run_id}/artifacts/{quote(path)}"


def policy_links(policy: str) -> dict[str, str]:
    """The pages of a policy in MLflow, title -> address or command, see `lasting`.

    For a registered version, these are the version and its run. For a checkpoint in a run
    directory, it is the run. For any other checkpoint the result is empty.

    Args:
        policy: NAME@champion, NAME/3, or a checkpoint directory relative to the workspace.
    """
    if is_reference(policy):
        version = find(policy)
        return version_links(version.name, version.version) | run_links(version.run_id)
    return run_links(mlflow_run_of(workspace.home() / policy))


def version_links(name: str, version: str) -> dict[str, str]:
    """The page of a version, title -> address or command."""
    return {"version in MLflow": lasting(version_url(name, version), f"{name}/{version}")}


def run_links(run_id: str | None) -> dict[str, str]:
    """The page of an MLflow run, title -> address or command; empty without a run."""
    return {"MLflow run": lasting(run_url(run_id), run_id)} if run_id else {}


def report_links(
    run_id: str | None,
    lineage: Lineage,
    flow_run: FlowRun | None = None,
    *,
    folder: Path | None = None,
    stored: str | None = None,
) -> dict[str, str]:
    """The links of a report: the MLflow run that trained the policy, the Prefect flow run, and the
    dataset cards.

    Args:
        run_id: The id of the MLflow run, if it is known.
        lineage: The lineage of the policy.
        flow_run: The Prefect flow run; by default the one that started this process.
        folder: Where the report is, in the workspace. Dataset cards are relative to it.
        stored: Where the report is among the artifacts of the run, instead. Its dataset cards are
            then those beside it.
    """
    links = run_links(run_id)
    flow_run = flow_run or FlowRun.from_environment()
    if flow_run:
        links["Prefect run"] = flow_run.url or f"rrf open {flow_run.id}"
    for dataset in lineage.datasets:
        title = f"dataset {dataset.name}" if len(lineage.datasets) > 1 else "dataset"
        if not (card := dataset.card):
            continue
        if "://" in card:
            links[title] = card
        elif stored is not None:
            links[title] = os.path.relpath(dataset.card_place(lineage), stored)
        elif folder is not None:
            links[title] = os.path.relpath(workspace.home() / card, folder.resolve())
        else:
            links[title] = card
    return links
