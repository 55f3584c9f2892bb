"""What `rrf eval` does after the episodes: the gate's verdict, and a version in the registry."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rrf.evaluation.gates.gate import GateCfg
    from rrf.evaluation.gates.verdicts import Verdict


def require_model(name: str) -> None:
    """Raise ValueError if no such model is registered; it may be one without a champion."""
    from rrf.tracking import registry

    try:
        registry.versions(name)
    except ValueError as error:
        raise ValueError(f"--champion: {error}") from error


def require_registrable(checkpoint: Path, name: str, lineage: dict) -> None:
    """Raise ValueError if the versions of a model learned another task, or it is not known what a
    checkpoint was trained on, or in which run."""
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
    """The gate's verdict on the evaluation in `folder`, printed and written beside it.

    Args:
        champion: The registered model whose champion to compare with; None compares with none.
        evaluate: Evaluates a registered version under the same protocol; its directory.
        lineage, config, links: Of the candidate, for the report.
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
    """Make the checkpoint with its evaluation, and the verdict on it, a version of `name`."""
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
