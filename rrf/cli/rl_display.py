"""Progress of `rrf train` for VLA reinforcement learning: a live table on a terminal, lines in a
log."""

import contextlib
from collections.abc import Callable, Iterator

import typer

_SHOWN_ROUNDS = 12
_OWN = {  # what one kind of algorithm measures and another does not: metric and format
    "kl": ("actor/approx_kl", ".4f"),
    "clipped": ("actor/pg_clipfrac", ".0%"),
    "value": ("value/mean", ".3f"),
    "entropy": ("policy/entropy", ".2f"),
}


@contextlib.contextmanager
def shown(cfg) -> Iterator[Callable]:
    """Yield a callback that takes a `rrf.runners.vla_rl.roles.RoundProgress` and shows it."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_interactive:
        yield lambda progress: typer.echo(line(progress))
        return
    history: list = []
    with Live(console=console, refresh_per_second=4) as live:

        def show(progress) -> None:
            history.append(progress)
            live.update(_table(cfg, history))

        yield show


def line(progress) -> str:
    """One round as a line of text."""
    success = progress.metrics["env/success_once"]
    validation = "" if progress.validation is None else f"validation {progress.validation:.1%} "
    return (
        f"round {progress.round}/{progress.max_rounds} {progress.episodes} episodes "
        f"success {success:.1%} {validation}"
        + "".join(
            f"{name} {_own(progress, name)} "
            for name in ("kl", "value", "entropy")
            if _own(progress, name)
        )
        + f"{progress.episodes_per_s:.1f} episodes/s eta {_clock(progress.eta_s)}"
    )


def _table(cfg, history: list):
    from rich.table import Table

    newest = history[-1]
    title = (
        f"{cfg.experiment_name}: round {newest.round}/{newest.max_rounds}, {newest.episodes} "
        f"episodes, {newest.episodes_per_s:.1f}/s, eta {_clock(newest.eta_s)}"
    )
    table = Table(title=title, title_justify="left")
    names = [task.removesuffix("-v3") for task in cfg.tasks]
    own = [name for name in _OWN if _own(newest, name)]
    for name in ("round", *names, "all", "validation", *own, "length"):
        table.add_column(name, justify="right")
    for progress in history[-_SHOWN_ROUNDS:]:
        rates = [f"{progress.success[t]:.0%}" if t in progress.success else "" for t in cfg.tasks]
        metrics = progress.metrics
        table.add_row(
            str(progress.round),
            *rates,
            f"{metrics['env/success_once']:.0%}",
            "" if progress.validation is None else f"{progress.validation:.1%}",
            *(_own(progress, name) for name in own),
            f"{metrics['env/episode_len']:.1f}",
        )
    return table


def _own(progress, name: str) -> str:
    """A metric of `_OWN` as text; empty if the algorithm does not measure it (yet)."""
    metric, form = _OWN[name]
    return format(progress.metrics[metric], form) if metric in progress.metrics else ""


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"
