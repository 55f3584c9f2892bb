"""`train-vla`: train a policy from a dataset, judge and register it; promote it if it passes."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from flows import names, notify
from flows.cost import Cost, Meter
from flows.evaluate import run_evaluation
from flows.fitting import check_vla
from flows.gate import gate_for, protocol_file
from flows.ingest import DatasetName, bring_dataset, describe
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
from rrf import workspace
from rrf.config import did_you_mean
from rrf.runners.checkpoints.deployable import load_lineage

NEW_MODEL_GATE = "configs/gates/metaworld-demo.yaml"
NEW_MODEL_RL_GATE = "configs/gates/metaworld-rl.yaml"
STAGES = ("pretrain", "sft", "rl")
Overrides = Annotated[
    Override | None,
    Field(description="Dotted overrides that begin with the stage, e.g. sft.optimizer.lr."),
]


def _run_name() -> str:
    given = flow_run.parameters
    stages = ", ".join(stage for stage in STAGES if given[stage])
    return f"train-vla {given['model']}: {given['dataset']} ({stages})"


@flow(
    name="train-vla",
    flow_run_name=_run_name,
    **notify.OF_EVERY_FLOW,
)
@within_budget
def train_vla(
    dataset: DatasetName = "metaworld-demo",
    pretrain: TrainFile | None = "compact-vla-pretrain-others",
    sft: TrainFile = "compact-vla-one-demo",
    rl: TrainFile | None = "metaworld-grpo-demo",
    gate: GateFile | None = None,
    model: ModelName = "metaworld-compact",
    overrides: Overrides = None,
    budget: BudgetField = None,
) -> dict:
    """Ingest a dataset; train, evaluate, judge and register a policy; promote it if it passes.

    The stages of training are pretraining, fine-tuning and reinforcement learning.

    Args:
        dataset: Name of the dataset: a file in configs/datasets/ without .yaml.
        pretrain: Preset or file of the pretraining run; null fine-tunes from random weights.
        sft: Preset or file of the fine-tuning run.
        rl: Preset or file of the reinforcement learning after it; null ends with fine-tuning.
        gate: File in configs/gates/; it names the protocol too. By default it is the gate that
            rules the model, and for a new model metaworld-rl.yaml, or metaworld-demo.yaml without
            reinforcement learning.
        model: Name of the model in the registry.
        overrides: Dotted overrides that begin with the stage, e.g. {"sft.optimizer.lr": 0.001}.
        budget: What the trainings may use together, with earlier attempts, e.g. {"gpu_hours": 8}.
    """
    changes, results, used = by_stage(overrides or {}), {}, Cost()
    gate = gate_for(model, gate, NEW_MODEL_RL_GATE if rl else NEW_MODEL_GATE)
    targets = {"pretrain": pretrain, "sft": sft, "rl": rl}
    trained = {stage: (target, changes[stage]) for stage, target in targets.items() if target}
    protocol = check(gate, trained, model)
    lineage = bring_dataset(dataset)
    if pretrain:
        given = {"dataset": dataset} | changes["pretrain"]
        parent = train("pretrain", pretrain, given, budget)
        used += Meter(pretrain, given).cost
        changes["sft"] = {"init_from": workspace.relative(parent.checkpoint)} | changes["sft"]
        results["pretrain"] = parent
    given = {"dataset": dataset} | changes["sft"]
    policy = results["sft"] = train("sft", sft, given, budget, used)
    used += Meter(sft, given).cost
    before = None
    if rl:
        before = run_evaluation(policy.checkpoint, protocol)
        changes["rl"] = {"init_from": workspace.relative(policy.checkpoint)} | changes["rl"]
        policy = results["rl"] = train("rl", rl, changes["rl"], budget, used)
    trained_on = datasets_behind(policy.checkpoint)
    if trained_on != [dataset]:  # a mixture of datasets: the lineage must name all of them
        lineage = describe(trained_on)
    return conclude(model, results, gate, lineage, before)


@step(name="check", task_run_name=names.of_task("check {model} against {gate}", "gate"))
def check(gate: str, trained: Mapping[str, tuple[str, dict]], model: str) -> str:
    """Check before the training what would be refused after it, see `flows.fitting.check_vla`;
    returns the file of the gate's protocol.
    """
    protocol = protocol_file(gate)
    words = {stage: (target, as_words(changes)) for stage, (target, changes) in trained.items()}
    check_vla(gate, words, model)
    return protocol


def datasets_behind(checkpoint: str) -> list[str]:
    """The datasets that the policy in a checkpoint was trained on, according to its manifest."""
    return load_lineage(checkpoint).dataset_names


def by_stage(overrides: dict, stages: Sequence[str] = STAGES) -> dict[str, dict]:
    """Group overrides by stage: `{"sft.max_steps": 10}` gives `{"sft": {"max_steps": 10}, ...}`.

    Stages without overrides get an empty mapping.

    Raises:
        ValueError: For a path that does not begin with a stage.
    """
    changes: dict[str, dict] = {stage: {} for stage in stages}
    for path, value in overrides.items():
        stage, _, rest = path.partition(".")
        if stage not in changes or not rest:
            hint = did_you_mean(stage, stages)
            known = ", ".join(stages) or "none"
            raise ValueError(
                f"override '{path}' does not begin with a stage{hint}; e.g. sft.seed. This run "
                f"trains: {known}"
            )
        changes[stage][rest] = value
    return changes
