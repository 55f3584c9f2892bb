"""`train-offline`: train a state-based policy from a dataset, judge and register it, and promote it
if the gate passes.
"""

from prefect import flow

from flows import names, notify
from flows.gate import gate_for
from flows.ingest import DatasetName, bring_dataset
from flows.promote import ModelName
from flows.train_locomotion import Overrides, check, lineage_of
from flows.training import BudgetField, GateFile, TrainFile, conclude, train, within_budget

NEW_MODEL_GATE = "configs/gates/pendulum.yaml"


@flow(
    name="train-offline",
    flow_run_name=names.of_flow("train-offline {model}: {preset} on {dataset}", "preset"),
    **notify.OF_EVERY_FLOW,
)
@within_budget
def train_offline(
    dataset: DatasetName = "pendulum-medium",
    preset: TrainFile = "pendulum-iql",
    gate: GateFile | None = None,
    model: ModelName = "pendulum-offline",
    overrides: Overrides = None,
    budget: BudgetField = None,
) -> dict:
    """Ingest recorded states; train, evaluate, judge and register a policy; promote it or not.

    Args:
        dataset: Name of the dataset: a file in configs/datasets/ without .yaml.
        preset: Preset or file of the training run.
        gate: File in configs/gates/; it names the protocol too. By default it is the gate that
            rules the model, and for a new model pendulum.yaml.
        model: Name of the model in the registry.
        overrides: Dotted overrides of the run, e.g. {"max_iterations": 100}.
        budget: What the training may use with its earlier attempts, e.g. {"wall_hours": 2}.
    """
    gate = gate_for(model, gate, NEW_MODEL_GATE)
    changes = {"dataset": dataset} | (overrides or {})
    check(preset, gate, model, changes)
    bring_dataset(dataset)
    policy = train("offline", preset, changes, budget)
    lineage = lineage_of(policy.checkpoint)
    return conclude(model, {"offline": policy}, gate, lineage)
