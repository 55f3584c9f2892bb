"""Output of the `rrf data` commands: progress bars, tables, paths."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rrf.data.validation.summary import Summary


_LINE_EVERY_S = 30.0


@contextlib.contextmanager
def progress_bars(*names: str) -> Iterator[dict[str, Callable[[int, int, str], None]]]:
    """Show a progress bar per name; in a log file, a line now and then. Yields name -> function of
    (done, total, current item).
    """
    from rich.console import Console

    if not Console().is_terminal:
        yield {name: _lines(name) for name in names}
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[item]}"),
    )
    with Progress(*columns) as progress:
        bars = {name: progress.add_task(name, total=None, item="") for name in names}

        def updater(name: str) -> Callable[[int, int, str], None]:
            return lambda done, total, item: progress.update(
                bars[name], completed=done, total=total, item=item
            )

        yield {name: updater(name) for name in names}


def _lines(name: str) -> Callable[[int, int, str], None]:
    """Prints how far something is: when it begins, every `_LINE_EVERY_S`, and when it is done."""
    shown_at: float | None = None

    def update(done: int, total: int, item: str) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if shown_at is None or done == total or now - shown_at > _LINE_EVERY_S:
            shown_at = now
            print(f"{name}: {done} of {total}{f' ({item})' if item else ''}", flush=True)

    return update


def print_stats(summary: "Summary") -> None:
    """Print the statistics of each dimension."""
    from rich.table import Table

    from rrf.data.validation.summary import dimension_labels

    columns = ("min", "q01", "mean", "q99", "max", "std")
    table = Table(title=f"statistics of {shown(summary.root)}")
    table.add_column("dimension", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    for key, stats in summary.stats.items():
        for index, label in enumerate(dimension_labels(key, summary.info["features"][key])):
            values = [f"{stats[column][index]:.4g}" for column in columns]
            table.add_row(plain(label.removeprefix("observation.")), *values)
    say(table)


def shown(path: Path) -> Path:
    """The path relative to the working directory if it is inside it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def say(thing) -> None:
    from rich.console import Console

    Console().print(thing)
