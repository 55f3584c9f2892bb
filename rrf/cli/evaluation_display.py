"""Output of `rrf eval`: a progress bar while episodes run, and the result as lines of text."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rrf.evaluation.protocols.base import OnEpisode
    from rrf.evaluation.results import Evaluation


@contextlib.contextmanager
def showing(title: str, total: int) -> "Iterator[OnEpisode]":
    """Yield an `on_episode` that shows progress: a live bar on a terminal, lines in a log."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console()
    counts = {"solved": 0, "done": 0}

    def count(episode) -> str:
        counts["solved"] += episode.success
        counts["done"] += 1
        return f"success {counts['solved'] / counts['done']:.1%}"

    if not console.is_interactive:
        every = max(1, total // 20)

        def line(episode, done: int, of: int) -> None:
            text = count(episode)
            if done % every == 0 or done == of:
                typer.echo(f"episode {done}/{of} {text}")

        yield line
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda episode, done, of: bar.update(task, completed=done, text=count(episode))


def echo(line: str) -> None:
    """Print a line; warnings go to stderr."""
    typer.echo(line, err=line.startswith("warning:"))


def summary(evaluation: "Evaluation") -> str:
    """A report as text: success overall and by task, mean metrics, and the time it took."""
    from rrf.evaluation.protocols.files import parse_protocol

    units = parse_protocol(evaluation.protocol).metrics
    timings = evaluation.timings
    lines = [f"{evaluation.policy}: success {evaluation.overall}"]
    lines += [f"  {task}: {rate}" for task, rate in evaluation.per_task.items()]
    lines += [
        f"  {name} {mean:.4g} ({units[name]})" for name, mean in evaluation.mean_metrics().items()
    ]
    lines.append(
        f"  {timings['wall_s']:.1f} s wall, {timings['cpu_s']:.1f} s CPU, "
        f"{timings['episodes_per_s']:.2f} episodes/s"
    )
    return "\n".join(lines)
