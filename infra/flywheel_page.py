"""What `make flywheel` shows in the end: the page, and its first lines for the terminal."""

import dataclasses
from pathlib import Path

from infra import flywheel
from rrf import atomic, workspace
from rrf.evaluation.deployment.turn import Row, compared, turn_page
from rrf.evaluation.results import Evaluation
from rrf.registry import versions


def write_page(result: dict, steps: flywheel.Steps) -> tuple[Path, list[str]]:
    """Write the page and its numbers as JSON into the workspace.

    Args:
        result: Of `infra.flywheel.turn`.
        steps: What was done.

    Returns:
        The page, and what to print.
    """
    second, store = result["second"], result["store"]
    after = Evaluation.load(second["evaluation"])
    rows = compared(_champion_before(result["first"]["version"], after), after)
    alone = flywheel.summaries(store, flywheel.ALONE_SEED)
    corrected = flywheel.summaries(store, flywheel.CORRECTED_SEED)
    champion = versions.champion(flywheel.MODEL)
    released = [_told(release) for release in result["released"]]
    decided = [release["text"] for release in result["released"]]
    facts = {
        "champion now": f"version {champion.version if champion else 'none'}",
        "verdict": second["verdict"],
        "canary, champion": "; ".join(released) or "no candidate has passed",
        "episodes alone": str(len(alone)),
        "episodes with an operator": str(len(corrected)),
        "wall time": f"{steps.total('wall_s'):.0f} s",
        "CPU time": f"{steps.total('cpu_s'):.0f} s",
    }
    times = [
        [name, f"{step['wall_s']:.0f}", f"{step['cpu_s']:.0f}"] for name, step in steps.done.items()
    ]
    reasons = [
        second["decision"],
        *second["reasons"],
        *(f"the canary: {text}" for text in decided),
        f"started again: {result['again'].get('why', 'it trained again')}",
    ]
    page = workspace.home() / "flywheel.html"
    atomic.write_text(page, turn_page(rows, alone, corrected, facts, times, reasons))
    took = {name: [step["wall_s"], step["cpu_s"]] for name, step in steps.done.items()}
    atomic.write_json(
        workspace.home() / "flywheel.json",
        {
            "rows": [_plain(row) for row in rows],
            "released": result["released"],
            "wall_and_cpu_s": took,
        },
    )
    lines = [
        f"{row.task:26}{cells[1]:>22} -> {cells[2]:>22}  p {cells[6]}"
        for row in rows
        for cells in [row.cells()]
    ]
    wall = f"{steps.total('wall_s'):.0f} s wall, {steps.total('cpu_s'):.0f} s CPU"
    return page, [
        "",
        *lines,
        f"gate      {second['verdict']}: {second['decision']}",
        *(f"canary    {line}: {text}" for line, text in zip(released, decided, strict=True)),
        f"champion  {facts['champion now']}",
        f"time      {wall}",
    ]


def _told(release: dict) -> str:
    """What canary and champion have solved."""
    canary, champion = release["canary"], release["champion"]
    return (
        f"{canary['solved']} of {canary['ended']}, {champion['solved']} of {champion['ended']} "
        "solved"
    )


def _plain(row: Row) -> dict:
    rates = {"before": dataclasses.asdict(row.before), "after": dataclasses.asdict(row.after)}
    return {"task": row.task, **rates, "wins": row.wins, "losses": row.losses, "p": row.p}


def _champion_before(version: str, after: Evaluation) -> Evaluation:
    """The evaluation of the champion of before that the gate has compared the candidate with."""
    champion = versions.find(f"{flywheel.MODEL}/{version}")
    for file in (workspace.state() / "evaluations").glob("*/evaluation.json"):
        evaluation = Evaluation.load(file.parent)
        is_its = evaluation.checkpoint_digest == champion.checkpoint_digest
        if is_its and evaluation.successes.keys() == after.successes.keys():
            return evaluation
    raise ValueError(f"the evaluation of {champion} is gone; begin anew: rm -rf .rrf/flywheel")
