"""The steps of `rrf eval` after the episodes: the verdict of the gate, and the registration."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rrf.evaluation.gates.gate import GateCfg
    from rrf.evaluation.gates.verdicts import Verdict


def require_model(name: str) -> None:
    """Raise ValueError if the model is not registered. It need not have a champion."""
    from rrf.tracking import registry

    try:
        registry.versions(name)
    except ValueError as error:
        raise ValueError(f"--champion: {error}") from error


def require_registrable(checkpoint: Path, name: str, lineage: dict) -> None:
    """Raise ValueError if a checkpoint cannot become a version of model `name`.

    This is so if the versions of the model were trained on another task, or if the checkpoint's
    dataset or environment, or its MLflow run, is unknown.
    """
    from rrf.cli.models import lineage_behind, run_of
    from rrf.tracking import registry

    try:
        registry.check_task(name, lineage)
        lineage_behind(checkpoint)
        run_of(checkpoint)
    except ValueError as error:
        raise ValueError(f"--register: {error}") from error


def judged(
    folder: Path,
    gate: "GateCfg",
    champion: str | None,
    evaluate: Callable[[str], Path],
    lineage: dict,
    config: dict,
    links: dict[str, str],
) -> "Verdict":
    """Let the gate judge the evaluation in `folder`; print the verdict and write it there.

    Args:
        champion: The registered model whose champion to compare with; None for no comparison.
        evaluate: Evaluates a registered version under the same protocol and returns the directory.
        lineage: What stands behind the candidate, for the report.
        config: The resolved config of its training, for the report.
        links: Pages that the report leads to: title -> address.
    """
    from rrf.evaluation.judging import judge, round_of
    from rrf.evaluation.results import EvaluationReport
    from rrf.tracking import registry

    report, theirs, version = EvaluationReport.load(folder), None, None
    found = registry.champion(champion) if champion else None
    if champion and found is None:
        typer.echo(f"'{champion}' has no champion yet; judged without one")
    if found:
        is_same = found.checkpoint_digest == report.checkpoint_digest
        theirs = folder if is_same else evaluate(f"models:/{found.name}/{found.version}")
        version = found.version
    round = round_of(gate, report.protocol["episodes_per_task"])
    verdict = judge(folder, gate, theirs, round, version, lineage, config, links=links)
    typer.echo(f"gate {gate.name}: {verdict.outcome}")
    for reason in verdict.reasons:
        typer.echo(f"  {reason}")
    if verdict.outcome == "hold":
        judged_on = report.protocol["episodes_per_task"]
        first = max(gate.protocol.episodes_per_task, gate.looks[0])  # without --extra-episodes
        extra = judged_on + verdict.more_episodes_per_task - first
        typer.echo(f"  undecided; again with --extra-episodes {extra}")
    return verdict


def registered(checkpoint: Path, name: str, folder: Path, verdict: "Verdict | None" = None) -> None:
    """Register the checkpoint as a version of `name`, with its evaluation and verdict."""
    from rrf.cli.models import lineage_behind, run_of, tell_standing
    from rrf.evaluation.gates.verdicts import verdict_file
    from rrf.tracking import registry

    lineage = lineage_behind(checkpoint)
    version = registry.register(checkpoint, name, run_of(checkpoint), lineage, folder)
    is_champion = tell_standing(name, version)
    if verdict is None:
        return
    registry.note_verdict(name, version, verdict)
    if verdict.passed and not is_champion:
        written = verdict_file(folder, verdict.gate)
        typer.echo(f"to promote it: rrf models promote {name} {version} --verdict {written}")
