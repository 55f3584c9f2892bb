"""The parts of `rrf eval` that use a dataset instead of a simulation."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rrf.evaluation.candidate import Candidate

_FITTED_Q_UPDATES = 20_000


def open_loop(candidate: "Candidate", dataset: str, out: Path | None) -> None:
    """Write the errors on the held-out episodes of a dataset, and a page about them."""
    from rrf import atomic, workspace
    from rrf.evaluation.open_loop.errors import (
        HOLD,
        MEAN,
        OLDEST,
        OTHER,
        POLICY,
        evaluate_held_out,
    )
    from rrf.evaluation.open_loop.page import open_loop_page

    place = workspace.dataset(dataset)
    folder = out or _folder("open-loop", place, candidate)
    folder.mkdir(parents=True, exist_ok=True)
    typer.echo(f"comparing {candidate.label} with held-out episodes of {dataset} in {folder}")
    result, episodes = evaluate_held_out(candidate, place)
    facts = {
        "checkpoint_digest": candidate.checkpoint_digest,
        "dataset": dataset,
        "episodes": episodes,
    }
    atomic.write_json(folder / "open_loop.json", {**facts, **result.to_dict()})
    shown = f"{dataset}, held-out episodes {', '.join(map(str, episodes))}"
    atomic.write_text(folder / "report.html", open_loop_page(result, candidate.label, shown))
    shown_of = [who for who in (POLICY, OLDEST, MEAN, HOLD) if who in result.errors]
    errors = ", ".join(f"{who} {result.total(who):.3f}" for who in shown_of)
    typer.echo(f"error in standard deviations on {result.num_frames} frames: {errors}")
    if candidate.config["policy"]["cameras"] and not result.images_help:
        other = f"{result.total(OTHER):.3f}"
        typer.echo(f"the images do not help: with those of other frames, the error is {other}")
    typer.echo(f"report {folder / 'report.html'}")


def fitted_q(candidate: "Candidate", dataset: str, out: Path | None) -> None:
    """Write an estimate of the policy's return from the transitions of a dataset."""
    import dataclasses

    from rrf import atomic, workspace
    from rrf.cli.data_display import progress_bars
    from rrf.evaluation.control.fitted_q import fitted_q_of

    place, total = workspace.dataset(dataset), _FITTED_Q_UPDATES
    folder = out or _folder("fitted-q", place, candidate)
    folder.mkdir(parents=True, exist_ok=True)
    typer.echo(
        f"estimating {candidate.label} from {dataset} in {folder}: {total} updates, some minutes"
    )
    with progress_bars("fitting") as bars:
        estimate = fitted_q_of(
            candidate, place, total, lambda count: bars["fitting"](count, total, "")
        )
    facts = {"checkpoint_digest": candidate.checkpoint_digest, "dataset": dataset}
    atomic.write_json(folder / "fitted_q.json", facts | dataclasses.asdict(estimate))
    typer.echo(
        f"discounted return from the recorded initial states (gamma {estimate.gamma:g}): estimated "
        f"{estimate.mean:.4g}, standard deviation of {len(estimate.values)} fits "
        f"{estimate.spread:.2g}; recorded {estimate.recorded:.4g}"
    )
    if estimate.has_diverged:
        typer.echo(
            f"the estimate is no possible return, which would be within +-{estimate.limit:.4g}: "
            "the policy acts too differently from the recordings"
        )
    typer.echo("an estimate for a reader, which gates do not use; rrf eval plays the policy")
    typer.echo(f"written to {folder / 'fitted_q.json'}")


def _folder(kind: str, place, candidate: "Candidate") -> Path:
    from rrf import workspace

    name = f"{kind}-{Path(str(place)).name}-{candidate.checkpoint_digest[:12]}"
    return workspace.state() / "evaluations" / name
