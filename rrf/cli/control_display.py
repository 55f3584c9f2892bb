"""Progress of `rrf train` for state-based control: a live table on a terminal, lines in a log."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping

import typer

_SHOWN_ROUNDS = 12
_COLUMNS = {  # a column is shown if the run has its metric
    "return": ("rollout/return", "{:.4g}"),
    "length": ("rollout/length", "{:.0f}"),
    "steps/s": ("perf/steps_per_s", "{:.0f}"),
    "updates": ("train/num_updates", "{:.0f}"),
    "kl": ("policy/kl", "{:.4f}"),
    "lr": ("train/learning_rate", "{:.1e}"),
    "std": ("policy/std", "{:.3f}"),
    "alpha": ("policy/alpha", "{:.3g}"),
    "value loss": ("loss/value", "{:.3g}"),
    "critic loss": ("loss/critic", "{:.3g}"),
    "style": ("amp/style_reward", "{:.3f}"),
}


@contextlib.contextmanager
def shown(cfg) -> Iterator[Callable]:
    """Yield a callback that takes a `rrf.runners.control.loop.ControlProgress` and shows it.

    Warnings are printed as single lines meanwhile.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with warnings.catch_warnings():
        if not console.is_interactive:
            warnings.showwarning = _warning_line
            yield lambda progress: typer.echo(line(progress))
            return
        history: list = []
        with Live(console=console, refresh_per_second=4) as live:
            warnings.showwarning = lambda message, *_, **__: live.console.print(
                f"warning: {message}", style="yellow", markup=False
            )

            def show(progress) -> None:
                history.append(progress)
                live.update(_table(cfg.experiment_name, history[-_SHOWN_ROUNDS:]))

            yield show


def line(progress) -> str:
    """One iteration as a line of text."""
    return (
        f"iteration {progress.iteration}/{progress.max_iterations} {progress.num_steps} steps "
        f"{numbers(progress.metrics)} eta {_clock(progress.eta_s)}"
    )


def numbers(metrics: Mapping[str, float]) -> str:
    """The shown metrics as text, e.g. "return 12.5 length 200"."""
    return " ".join(f"{name} {text}" for name, text in _cells(metrics).items())


def _warning_line(message, *_, **__) -> None:
    typer.echo(f"warning: {message}", err=True)


def _table(name: str, history: list):
    from rich.table import Table

    newest = history[-1]
    table = Table(
        title=f"{name}: iteration {newest.iteration}/{newest.max_iterations}, "
        f"{newest.num_steps} steps, eta {_clock(newest.eta_s)}",
        title_justify="left",
    )
    columns = list(_cells(newest.metrics))
    for column in ("iteration", *columns):
        table.add_column(column, justify="right")
    for progress in history:
        cells = _cells(progress.metrics)
        table.add_row(str(progress.iteration), *(cells.get(column, "") for column in columns))
    return table


def _cells(metrics: Mapping[str, float]) -> dict[str, str]:
    return {
        column: form.format(metrics[name])
        for column, (name, form) in _COLUMNS.items()
        if name in metrics
    }


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
