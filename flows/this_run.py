"""The flow run that a step belongs to: how others refer to it, and what it is called at the end."""

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from rrf.tracking.flow_run import FlowRun


def this_run() -> FlowRun | None:
    """The flow run that this code is called in; None outside of one."""
    if not flow_run.id:
        return None
    address = url_for("flow-run", obj_id=flow_run.id)
    return FlowRun(flow_run.id, flow_run.name or "", address or "")


def name_version(model: str, version: str) -> None:
    """Put the version that a flow run has made into its name, after the model."""
    name = str(flow_run.name).replace(f" {model}", f" {model} version {version}", 1)
    with get_client(sync_client=True) as client:
        client.set_flow_run_name(flow_run.id, name)
