"""`train-vla`: from a dataset to a judged model version, promoted if the gate passes it."""

import json
from pathlib import Path
from typing import Annotated

from prefect import flow
from pydantic import Field

from flows import commands, progress, slots
from flows.evaluate import run_evaluation
from flows.gate import evaluate_and_judge, protocol_file
from flows.ingest import DatasetName, bring_dataset, describe
from flows.promote import ModelName, promote_version, refuse_version
from flows.steps import step
from rrf import atomic
from rrf.config import did_you_mean
from rrf.tracking import registry
from rrf.tracking.lineage import datasets_of

STAGES = ("pretrain", "sft", "rl")
TrainFile = Annotated[str, Field(description="A preset, or a file of configs/train/.")]
GateFile = Annotated[str, Field(description="A file of configs/gates/.")]
Overrides = Annotated[
    dict[str, bool | int | float | str | list | None] | None,
    Field(description="Dotted overrides with the stage in front, e.g. sft.optimizer.lr."),
]


@step(name="train", task_run_name="{stage}")
def train(stage: str, target: str, overrides: dict) -> dict:
    """Train in a process of its own: result.json. Finished runs are reused, interrupted resumed."""
    words = [f"{path}={json.dumps(value)}" for path, value in overrides.items()]
    with slots.gpu_slot():
        lines = commands.rrf(stage, "train", target, *words)
    checkpoint = Path(lines[-1].removeprefix("checkpoint "))
    is_reused = any(line.startswith("reused ") for line in lines)
    return json.loads((run_of(checkpoint) / "result.json").read_text()) | {"reused": is_reused}


@step(name="register")
def register(model: str, policy: dict, evaluation: str, lineage: dict) -> str:
    """Put the checkpoint with its evaluation into the registry; the same one stays one version."""
    progress.reporter("registry")(f"registering {model}")
    return registry.register(policy["checkpoint"], model, policy["run_id"], lineage, evaluation)


@flow(name="train-vla", persist_result=True, result_serializer="json")
def train_vla(
    dataset: DatasetName = "metaworld-demo",
    pretrain: TrainFile | None = "compact-vla-pretrain-others",
    sft: TrainFile = "compact-vla-one-demo",
    rl: TrainFile | None = "metaworld-grpo-demo",
    gate: GateFile = "configs/gates/metaworld-demo.yaml",
    rl_gate: GateFile = "configs/gates/metaworld-rl.yaml",
    model: ModelName = "metaworld-compact",
    overrides: Overrides = None,
) -> dict:
    """Ingest, pretrain, fine-tune, reinforce, evaluate, judge, register, promote what passes.

    Args:
        dataset: Name of the dataset: a file of configs/datasets/ without .yaml.
        pretrain: Preset or file of the pretraining run; null fine-tunes from random weights.
        sft: Preset or file of the fine-tuning run.
        rl: Preset or file of the reinforcement learning after it; null ends with fine-tuning.
        gate: File of configs/gates/ for a fine-tuned policy; it names the protocol too.
        rl_gate: The same for a reinforced policy.
        model: Name of the model in the registry.
        overrides: Dotted overrides with the stage in front, e.g. {"sft.optimizer.lr": 0.001}.
    """
    changes, training = by_stage(overrides or {}), {}
    lineage = bring_dataset(dataset)
    if pretrain:
        parent = train("pretrain", pretrain, {"dataset": dataset} | changes["pretrain"])
        changes["sft"] = {"init_from": parent["checkpoint"]} | changes["sft"]
        training["pretrain"] = parent
    policy = training["sft"] = train("sft", sft, {"dataset": dataset} | changes["sft"])
    before = None
    if rl:
        gate = rl_gate
        before = run_evaluation(policy["checkpoint"], protocol_file(gate))
        changes["rl"] = {"init_from": policy["checkpoint"]} | changes["rl"]
        policy = training["rl"] = train("rl", rl, changes["rl"])
    trained_on = datasets_behind(policy["checkpoint"])
    if trained_on != [dataset]:  # a mixture: what is promoted stands on all of it
        lineage = describe(trained_on)
    evaluation, verdict = evaluate_and_judge(policy["checkpoint"], gate, model, lineage, before)
    version = register(model, policy, evaluation, lineage)
    decide = promote_version if verdict.passed else refuse_version
    return {
        "model": model,
        "version": version,
        "promoted": verdict.passed,
        "decision": decide(model, version, verdict.to_dict()),
        "verdict": verdict.outcome,
        "reasons": verdict.reasons,
        "success": verdict.success,
        "before": before,
        "evaluation": evaluation,
        "lineage": lineage,
        "training": training,
    }


def run_of(checkpoint: Path) -> Path:
    """The run directory that a finished run's checkpoint lies in."""
    return next(folder for folder in checkpoint.parents if (folder / "result.json").is_file())


def datasets_behind(checkpoint: str) -> list[str]:
    """The datasets that the policy in a checkpoint learned from, by its manifest."""
    return datasets_of(json.loads((Path(checkpoint) / atomic.MANIFEST).read_text())["lineage"])


def by_stage(overrides: dict) -> dict[str, dict]:
    """`{"sft.max_steps": 10}` as `{"pretrain": {}, "sft": {"max_steps": 10}}`.

    Raises:
        ValueError: For a path that does not begin with a stage.
    """
    changes: dict[str, dict] = {stage: {} for stage in STAGES}
    for path, value in overrides.items():
        stage, _, rest = path.partition(".")
        if stage not in changes or not rest:
            hint = did_you_mean(stage, STAGES)
            raise ValueError(f"override '{path}' does not begin with a stage{hint}; e.g. sft.seed")
        changes[stage][rest] = value
    return changes
