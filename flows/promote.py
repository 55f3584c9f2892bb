"""`promote`: make a version the champion. The registry refuses it without a passing verdict."""

import json
from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from flows import artifacts, slots
from flows.steps import step
from rrf.evaluation.gates.verdicts import Verdict
from rrf.tracking import registry

ModelName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of a model in the registry."),
]


@step(name="promote", task_run_name="promote {model} version {version}")
def promote_version(model: str, version: str, verdict: dict | None) -> str:
    """Make the version @champion, one promotion of a model at a time; returns the decision."""
    with slots.slot(f"registry-{model}"):
        entry = registry.promote(model, version, Verdict.from_dict(verdict) if verdict else None)
    decision = f"{model} version {entry.champion} is @champion"
    artifacts.show_champion(model, entry.champion, decision)
    return decision


@step(name="refuse", task_run_name="refuse {model} version {version}")
def refuse_version(model: str, version: str, verdict: dict) -> str:
    """Let the registry refuse this version and write down the reason; returns the reason."""
    try:
        with slots.slot(f"registry-{model}"):
            registry.promote(model, version, Verdict.from_dict(verdict))
    except ValueError as refusal:
        get_run_logger().warning("%s", refusal)
        return str(refusal)
    raise AssertionError(f"version {version} was promoted with a verdict that does not pass")


@step(name="verdict", task_run_name="verdict on {model} version {version}")
def verdict_of(model: str, version: str) -> dict | None:
    """The verdict that the last gate wrote to the version's tags, if any."""
    written = registry.find(f"{model}/{version}").tags.get("gate.verdict")
    return json.loads(written) if written else None


@flow(
    name="promote",
    flow_run_name="promote {model} version {version}",
    persist_result=True,
    result_serializer="json",
)
def promote(
    version: Annotated[str, Field(pattern=r"^[0-9]+$", description="Number of a version.")],
    model: ModelName = "metaworld-compact",
) -> str:
    """Make a version the champion.

    This is refused unless a gate has passed the version in comparison with the current champion.

    Args:
        version: Number of the version in the registry.
        model: Name of the model in the registry.
    """
    return promote_version(model, version, verdict_of(model, version))
