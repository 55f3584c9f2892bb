"""`promote`: make a version the champion. The registry refuses it unless its gate passes it."""

from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from flows import artifacts
from flows.steps import step
from flows.this_run import completed
from rrf.registry import promotion

ModelName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of a model in the registry."),
]


@step(name="promote", task_run_name="promote {model} version {version}")
def promote_version(model: str, version: str) -> str:
    """Make the version @champion; returns the decision."""
    promotion.promote(model, version)
    decision = f"{model} version {version} is @champion"
    artifacts.show_champion(model, version, decision)
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
    persist_result=True,
    result_serializer="json",
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
    decision = promote_version(model, version)
    return completed(decision, decision)
