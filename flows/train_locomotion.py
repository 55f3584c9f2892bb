"""`train-locomotion`: train a state-based policy from a preset, judge and register it, and promote
it if the gate passes.
"""

from typing import Annotated

from prefect import flow
from pydantic import Field

from flows import commands, names, notify
from flows.gate import gate_for, protocol_file
from flows.promote import ModelName
from flows.steps import Override, step
from flows.training import (
    BudgetField,
    GateFile,
    TrainFile,
    as_words,
    conclude,
    train,
    within_budget,
)
from rrf.lineage import Lineage

Overrides = Annotated[
    Override | None,
    Field(description="Dotted overrides of the training run, e.g. algorithm.learning_rate."),
]


NEW_MODEL_GATE = "configs/gates/locomotion.yaml"


@step(name="check", task_run_name=names.of_task("check {preset} against {gate}", "preset", "gate"))
def check(preset: str, gate: str, model: str, overrides: dict) -> None:
    """Check before the training what would be refused after it; see `flows.fitting`."""
    protocol_file(gate)
    commands.module("check", "flows.fitting", preset, gate, model, *as_words(overrides))


@step(name="lineage", task_run_name=names.of_task("lineage of {checkpoint}", "checkpoint"))
def lineage_of(checkpoint: str) -> Lineage:
    """The lineage of a policy, as training wrote it to the checkpoint."""
    from rrf.runners.checkpoints.deployable import load_lineage

    return load_lineage(checkpoint)


@flow(
    name="train-locomotion",
    flow_run_name=names.of_flow("train-locomotion {model}: {preset}", "preset"),
    **notify.OF_EVERY_FLOW,
)
@within_budget
def train_locomotion(
    preset: TrainFile = "go1-flat-ppo",
    gate: GateFile | None = None,
    model: ModelName = "go1-flat",
    overrides: Overrides = None,
    budget: BudgetField = None,
) -> dict:
    """Train in simulation, evaluate, judge and register a policy; promote it if it passes.

    Args:
        preset: Preset or file of the training run.
        gate: File in configs/gates/; it names the protocol too. By default it is the gate that
            rules the model, and for a new model locomotion.yaml.
        model: Name of the model in the registry.
        overrides: Dotted overrides of the run, e.g. {"max_iterations": 100}.
        budget: What the training may use with its earlier attempts, e.g. {"wall_hours": 2}.
    """
    gate = gate_for(model, gate, NEW_MODEL_GATE)
    check(preset, gate, model, overrides or {})
    policy = train("rl", preset, overrides or {}, budget)
    lineage = lineage_of(policy.checkpoint)
    return conclude(model, {"rl": policy}, gate, lineage)
