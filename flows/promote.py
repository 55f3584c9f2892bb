"""`promote`: make a version the champion. The registry refuses it unless its gate passes it."""

import math
from collections.abc import Callable
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.flow_runs import pause_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import deployment
from pydantic import Field

from flows import artifacts, notify
from flows.steps import step
from flows.this_run import completed, this_run
from rrf.registry import approvals, promotion, releases
from rrf.registry.approvals import AwaitingApprovalError

ModelName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of a model in the registry."),
]


class Approval(RunInput):
    """What the page of a flow run that waits for approvals asks for."""

    approval: Annotated[
        str, Field(description="The line that `rrf models approve … --print` has printed.")
    ] = ""


Decision = tuple[str, float | None]
"""What was decided, and for how many seconds it waits for approvals, or None."""


@step(name="promote", task_run_name="promote {model} version {version}")
def promote_version(model: str, version: str) -> Decision:
    """Make the version @champion."""
    was_champion = promotion.ledger_of(model).champion == version
    try:
        promotion.promote(model, version)
    except AwaitingApprovalError as waiting:
        return _waits(model, version, waiting)
    if was_champion:
        return f"skipped: nothing changed, {model} version {version} is @champion already", None
    decision = f"{model} version {version} is @champion"
    artifacts.show_champion(model, version, decision)
    notify.promoted(model, version, decision)
    return decision, None


@step(name="release", task_run_name="release {model} version {version}")
def release_version(model: str, version: str) -> Decision:
    """Let the version act as a canary beside the champion."""
    try:
        entry = releases.begin(model, version)
    except AwaitingApprovalError as waiting:
        return _waits(model, version, waiting)
    decision = f"{model} version {version} is a canary: {entry.reason}"
    notify.released(model, version, decision)
    return decision, None


def _waits(model: str, version: str, waiting: AwaitingApprovalError) -> Decision:
    approvals.note_flow_run(model, version, this_run())
    get_run_logger().info("%s", waiting)
    notify.waits(model, version, str(waiting))
    return str(waiting), waiting.seconds_left


@step(name="approve", task_run_name="approve {model} version {version}")
def approve_version(model: str, version: str, approval: str) -> None:
    """Write an approval to the ledger that somebody gave on the page of the flow run."""
    try:
        promotion.approve(approvals.parse(approval))
    except ValueError as error:
        get_run_logger().warning("this is not taken for an approval: %s", error)


def when_approved(act: Callable[[str, str], Decision], model: str, version: str) -> str:
    """Promote or release a version; returns the decision.

    While approvals are missing, the flow run is suspended: no process waits for them. It goes on
    when `rrf models approve` has written the last one, or on its page. A flow run without a
    deployment cannot be started again, so its process waits.

    Args:
        act: `promote_version` or `release_version`.
        model: Name of the model in the registry.
        version: Number of the version.
    """
    decision, seconds = act(model, version)
    while seconds is not None:
        wait = suspend_flow_run if deployment.id else pause_flow_run
        asked = Approval.with_initial_data(description=decision)
        given = wait(wait_for_input=asked, timeout=math.ceil(seconds))
        if given and given.approval.strip():
            approve_version(model, version, given.approval)
        decision, seconds = act(model, version)
    return decision


@step(name="refuse", task_run_name="refuse {model} version {version}")
def refuse_version(model: str, version: str) -> str:
    """Let the registry refuse this version and write down the reason; returns the reason."""
    try:
        promotion.promote(model, version)
    except promotion.NotPromotedError as refusal:
        get_run_logger().warning("%s", refusal)
        return str(refusal)
    raise AssertionError(f"version {version} was promoted with a verdict that does not pass")


@flow(
    name="promote",
    flow_run_name="promote {model} version {version}",
    **notify.OF_EVERY_FLOW,
)
def promote(
    version: Annotated[str, Field(pattern=r"^[0-9]+$", description="Number of a version.")],
    model: ModelName = "metaworld-compact",
) -> str:
    """Make a version the champion.

    This is refused unless the model's gate passes the version in comparison with its champions.

    Args:
        version: Number of the version in the registry.
        model: Name of the model in the registry.
    """
    decision = when_approved(promote_version, model, version)
    return completed(decision, decision)
