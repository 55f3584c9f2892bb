"""The parts of every training flow: train, then evaluate, judge, register, promote or refuse."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ParamSpec, cast

from prefect.states import Failed
from pydantic import Field

from flows import artifacts, commands, cost, names, progress, slots
from flows.cost import Budget, BudgetSpentError, Cost
from flows.gate import evaluate_and_judge
from flows.promote import promote_version, refuse_version, release_version, when_approved
from flows.steps import Word, step
from flows.this_run import completed, name_version, this_run
from rrf import processes
from rrf.cli.training_run import finished_training
from rrf.evaluation.results import Evaluation
from rrf.lineage import Lineage
from rrf.presets import resolve
from rrf.registry import promotion, registration
from rrf.run_directory import RESULT, TrainingResult

Arguments = ParamSpec("Arguments")
TrainFile = Annotated[Word, Field(description="A preset, or a training file in YAML.")]
BudgetField = Annotated[
    Budget | None,
    Field(description='What the trainings may use together, e.g. {"gpu_hours": 8}.'),
]
GateFile = Annotated[Word, Field(description="A file in configs/gates/.")]


@step(name="train", task_run_name=names.of_task("train {stage} {target}", "target"))
def train(
    stage: str,
    target: str,
    overrides: dict,
    budget: Budget | None = None,
    others: Cost | None = None,
) -> TrainingResult:
    """Train in a separate process.

    An interrupted run is resumed. A finished run is reused: no process is started for it, and no
    card waited for.

    Args:
        stage: Its name in the flow.
        target: Preset or training file.
        overrides: Of it.
        budget: Where it is used up, the training saves a checkpoint and ends.
        others: What other trainings of the flow have used of the budget.

    Raises:
        BudgetSpentError: If the budget is used up.
    """
    words, meter, others = as_words(overrides), cost.Meter(target, overrides), others or Cost()
    if meter.is_finished:
        others = Cost()
    if budget and (exceeded := budget.exceeded_by(meter.spent + others)):
        raise BudgetSpentError(stage, exceeded)

    def train_on(card: slots.Card) -> dict:
        def stop_when() -> str:
            return card.wanted() or meter.exceeded(budget, others)

        with meter.running(card.num_gpus):
            return commands.rrf(stage, "train", target, *words, env=card.env, stop_when=stop_when)

    if result := _finished(target, words):
        progress.reporter(stage)(f"reused {result.checkpoint}")
    else:
        try:
            result = TrainingResult.from_dict(slots.on_gpu(train_on))
        except processes.StoppedError as stopped:
            raise BudgetSpentError(stage, stopped.why) from None
    if not (result.reused and meter.is_finished):
        meter.finish()
        cost.record(result.run_id, meter.cost)
    artifacts.show_training(stage, names.short(target), result)
    return result


def _finished(target: str, words: Sequence[str]) -> TrainingResult | None:
    """The result of a training that is finished; None for another one, or a mistake in `words`,
    which the command will name.
    """
    try:
        return finished_training(resolve(target, words))
    except ValueError:
        return None


@step(name="register", task_run_name="register {model}")
def register(
    model: str, policy: TrainingResult, evaluation: str, lineage: Lineage, gate: str
) -> str:
    """Register the checkpoint with its evaluation; a known checkpoint gets no second version."""
    progress.reporter("registry")(f"registering {model}")
    version = registration.register(
        policy.checkpoint, model, run_id_of(policy), lineage, evaluation, this_run(), gate
    )
    artifacts.show_version(model, version, lineage, Path(evaluation))
    return version


def run_id_of(policy: TrainingResult) -> str:
    """The MLflow run of a training.

    Raises:
        ValueError: If it has none.
    """
    if policy.run_id is None:
        raise ValueError(
            f"{run_of(Path(policy.checkpoint))} was trained without MLflow, and a version belongs "
            "to an MLflow run; move it away, or train with another seed"
        )
    return policy.run_id


def conclude(
    model: str,
    training: Mapping[str, TrainingResult],
    gate: str,
    lineage: Lineage,
    before: str | None = None,
    canary: bool = False,
) -> dict:
    """Evaluate, judge and register a trained policy, and promote it if the gate passes it.

    Args:
        model: Name of the model in the registry.
        training: Stage -> the result of `train`; the last one trained the policy.
        gate: File in configs/gates/.
        lineage: The lineage of the policy.
        before: Directory of the evaluation of the policy that training started from.
        canary: Whether it is released as a canary instead, if there is a champion.

    Raises:
        ValueError: If a reused policy was trained without MLflow: every version belongs to an
            MLflow run.
    """
    policy = list(training.values())[-1]
    run_id_of(policy)
    evaluation, verdict = evaluate_and_judge(policy, gate, model, lineage, before)
    version = register(model, policy, evaluation, lineage, gate)
    name_version(model, version)
    champion = promotion.ledger_of(model).champion
    passed = verdict.passed and not promotion.revocation_of(model, version)
    canary = passed and canary and champion not in (None, version)
    if canary:
        decision = when_approved(release_version, model, version)
    elif passed:
        decision = when_approved(promote_version, model, version)
    else:
        decision = refuse_version(model, version)
    promoted = passed and not canary
    rate = Evaluation.load(evaluation).overall
    result = {
        "model": model,
        "version": version,
        "promoted": promoted,
        "canary": canary,
        "decision": decision,
        "verdict": verdict.outcome,
        "reasons": verdict.reasons,
        "success": verdict.success,
        "before": before,
        "evaluation": evaluation,
        "lineage": lineage.to_dict(),
        "training": {stage: result.to_dict() for stage, result in training.items()},
    }
    if promoted and champion != version:
        ending = f"promoted as {model}/{version}"
    else:
        ending = decision if passed else f"refused: {decision}"
    return completed(f"{rate.successes} of {rate.episodes} solved, {ending}", result)


def within_budget(flow: Callable[Arguments, dict]) -> Callable[Arguments, dict]:
    """A flow that ends in the failed state BudgetSpent if its budget is used up."""

    @functools.wraps(flow)
    def until_spent(*args: Arguments.args, **kwargs: Arguments.kwargs) -> dict:
        try:
            return flow(*args, **kwargs)
        except BudgetSpentError as spent:
            return cast(dict, Failed(name="BudgetSpent", message=str(spent)))

    return until_spent


def as_words(overrides: dict) -> list[str]:
    """Overrides as they are typed on the command line; the values are JSON, which is valid YAML."""
    return [f"{path}={json.dumps(value)}" for path, value in overrides.items()]


def run_of(checkpoint: Path) -> Path:
    """The run directory that contains the checkpoint of a finished run."""
    return next(folder for folder in checkpoint.parents if (folder / RESULT).is_file())
