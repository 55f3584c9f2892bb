"""What flows tell people, by `rrf.notifications`: how each run ended, and what waits for them."""

import typing

from prefect.client.schemas import FlowRun, State
from prefect.flows import Flow
from prefect.utilities.urls import url_for

from flows.this_run import this_run
from rrf.notifications import Event, tell

NIGHTLY = ("nightly-benchmark", "nightly-matrix")


def ended(flow: Flow, flow_run: FlowRun, state: State) -> None:
    """A hook of every flow, for its last state."""
    bad = "nightly" if flow.name in NIGHTLY else "failed"
    kind = "completed" if state.is_completed() else bad
    title = f"{flow_run.name or flow.name}: {state.name}"
    model = str((flow_run.parameters or {}).get("model") or "")
    link = url_for("flow-run", obj_id=flow_run.id) or ""
    tell(Event(kind, title, state.message or "", model, link=link))
    if kind == "completed" and flow.name in NIGHTLY:
        name = flow_run.name or flow.name
        tell(Event("nightly", name, state.message or "", model, link=link, is_over=True))


OF_EVERY_FLOW: dict[str, typing.Any] = {
    "persist_result": True,
    "result_serializer": "json",
    "on_completion": [ended],
    "on_failure": [ended],
    "on_crashed": [ended],
}
"""For the decorator of a flow: its result is kept as plain data, and its end is told."""


def waits(model: str, version: str, why: str) -> None:
    """A version waits for approvals."""
    title = f"{model} version {version} waits for approvals"
    tell(Event("approval", title, why, model, version, _page()))


def promoted(model: str, version: str, decision: str) -> None:
    """A version is the champion."""
    tell(Event("promoted", decision, "", model, version, _page()))


def released(model: str, version: str, decision: str) -> None:
    """A version is a canary."""
    tell(Event("canary", decision, "", model, version, _page()))


def _page() -> str:
    run = this_run()
    return run.url if run else ""
