"""The steps of `rrf eval` after the episodes: the verdict of the gate, and the registration."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrf.lineage import Lineage

if TYPE_CHECKING:
    from rrf.evaluation.gates.gate import GateCfg
    from rrf.evaluation.gates.verdicts import Verdict


def require_model(name: str) -> None:
    """Raise ValueError if the model is not registered. It need not have a champion."""
    from rrf.registry import listing

    try:
        listing.versions(name)
    except ValueError as error:
        raise ValueError(f"--champion: {error}") from error


def require_registrable(checkpoint: Path, name: str, lineage: Lineage, gate: Path | None) -> None:
    """Raise ValueError if a checkpoint cannot become a version of model `name`.

    This is so if the versions of the model were trained on another task, if the checkpoint's
    dataset or environment, or its MLflow run, is unknown, or if the gate of a new model cannot be
    recorded.
    """
    from rrf.cli.models import lineage_behind, run_of
    from rrf.registry import promotion, registration

    try:
        registration.check_task(name, lineage)
        if gate:
            promotion.check_recordable(name, gate)
        if registration.version_of(checkpoint, name) is None:
            lineage_behind(checkpoint)
            run_of(checkpoint)
    except ValueError as error:
        raise ValueError(f"--register: {error}") from error


def judged(
    folder: Path,
    gate: "GateCfg",
    model: str | None,
    evaluate: Callable[[str], Path],
    lineage: Lineage,
    config: dict,
    links: dict[str, str],
    store: bool,
) -> "Verdict":
    """Let the gate judge the evaluation in `folder`; print the verdict and write it there.

    Args:
        folder: The candidate's evaluation.
        gate: The gate.
        model: The registered model whose champions to compare with; None for no comparison.
        evaluate: Evaluates a registered version under the same protocol and returns the directory.
        lineage: What stands behind the candidate, for the report.
        config: The resolved config of its training, for the report.
        links: Pages that the report leads to: title -> address.
        store: Whether to store the evaluations of those champions in the registry, where a
            promotion looks for them.
    """
    from rrf.evaluation.judging import judge
    from rrf.evaluation.results import Evaluation
    from rrf.registry import promotion, registration

    evaluation, attempt, trial = Evaluation.load(folder), 1, None
    rivals: dict[str, tuple[str | Path, str | None]] = {}
    if model:
        rival_versions = promotion.rivals(model)
        if not rival_versions:
            typer.echo(f"'{model}' has no champion yet; judged without one")
        for role, rival in rival_versions.items():
            is_same = rival.checkpoint_digest == evaluation.checkpoint_digest
            rival_folder = folder if is_same else evaluate(rival.reference)
            rivals[role] = (rival_folder, rival.version)
            if store and not is_same:
                registration.store_evaluation(model, rival.version, rival_folder, attempt=False)
        attempt = promotion.attempt_of(model, evaluation.checkpoint_digest)
        trial = promotion.trial_verdict(model, evaluation.checkpoint_digest, gate)
    num_episodes = evaluation.protocol["episodes_per_task"]
    round = gate.round_of(num_episodes)
    if num_episodes > gate.looks[round]:
        typer.echo(
            f"look {round + 1} of gate {gate.name} judges the first {gate.looks[round]} of "
            f"{num_episodes} episodes per task"
        )
    verdict = judge(folder, gate, rivals, round, attempt, lineage, config, links=links, trial=trial)
    typer.echo(f"gate {gate.name}: {verdict.outcome}")
    for reason in verdict.reasons:
        typer.echo(f"  {reason}")
    if verdict.more_episodes_per_task:
        extra = gate.extra_episodes(num_episodes + verdict.more_episodes_per_task)
        typer.echo(f"  undecided; again with --extra-episodes {extra}")
    return verdict


def registered(
    checkpoint: Path,
    name: str,
    folder: Path,
    gate: Path | None = None,
    verdict: "Verdict | None" = None,
    imports: Sequence[str] = (),
) -> None:
    """Register the checkpoint as a version of `name`, with its evaluation and verdict.

    A version that exists already, e.g. one that was fetched, only gets the evaluation.
    """
    from rrf.cli.models import lineage_behind, run_of, tell_standing
    from rrf.registry import promotion, registration
    from rrf.run_directory import mlflow_run_of

    version = registration.version_of(checkpoint, name)
    if version and not mlflow_run_of(checkpoint):
        registration.store_evaluation(name, version, folder, attempt=True)
    else:
        lineage, run_id = lineage_behind(checkpoint), run_of(checkpoint)
        version = registration.register(checkpoint, name, run_id, lineage, folder, gate=gate)
    is_champion = tell_standing(name, version)
    if verdict is None or gate is None:
        return
    promotion.note_verdict(name, version, verdict)
    if why := promotion.other_gate(name, gate):
        typer.echo(f"this verdict promotes nothing: {why}")
    elif verdict.passed and not is_champion:
        modules = "".join(f" --import {module}" for module in imports)
        typer.echo(f"to promote it: rrf models promote {name} {version}{modules}")
    elif verdict.outcome == "hold" and not verdict.more_episodes_per_task:
        typer.echo(f"to promote it after its trial: rrf models promote {name} {version}")
