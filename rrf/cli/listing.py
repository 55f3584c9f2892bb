"""`rrf presets` and `rrf runs`, and the names that the shell completes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.tables import print_table


def presets(
    word: Annotated[
        str | None, typer.Argument(help="Only presets with this in their name or description.")
    ] = None,
) -> None:
    """List the presets of `rrf train`, each with what it is. Those of every model on every
    simulator, and other names, are listed with a word."""
    from rich.table import Table

    from rrf.config import did_you_mean
    from rrf.presets import PRESETS
    from rrf.presets.rlinf import recipes

    pairs = set(recipes.names())
    texts = {name: _about(name) for name in PRESETS if word or name not in pairs}
    if word:
        texts |= {a: f"another name for {name}" for a, name in sorted(PRESETS.aliases.items())}
    asked = (word or "").lower()
    shown = {name: text for name, text in texts.items() if asked in f"{name} {text}".lower()}
    if not shown:
        raise ValueError(f"no preset with '{word}'{did_you_mean(asked, texts)}")
    table = Table("preset", "what it is", box=None)
    for name, text in shown.items():
        table.add_row(name, text)
    print_table(table)
    if not word:
        parts = (recipes.ENVIRONMENTS, recipes.ALGORITHMS, recipes.MODELS)
        simulators, algorithms, models = map(", ".join, parts)
        typer.echo(
            f"and {len(pairs)} presets SIMULATOR-ALGORITHM-MODEL ({simulators}; {algorithms}; "
            f"{models}), also by the names of RLinf's configs: rrf presets maniskill"
        )


def runs(
    word: Annotated[str | None, typer.Argument(help="Only runs with this in their name.")] = None,
) -> None:
    """List the runs of this workspace in .rrf/runs, the newest last."""
    from rich.table import Table

    table = Table("run", "state", "newest checkpoint", "last written", box=None)
    directories = [path for path in run_directories() if not word or word in path.name]
    for path in sorted(directories, key=_written):
        newest = _newest_step(path)
        state = "finished" if (path / "result.json").is_file() else "unfinished"
        name = "-" if newest is None else f"global_step_{newest}"
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(_written(path)))
        table.add_row(path.name, state, name, written)
    if not directories:
        typer.echo(f"no runs{f' with {word!r}' if word else ''}; `rrf train PRESET` makes one")
        return
    print_table(table)


def complete_target(incomplete: str) -> list[str]:
    """Presets, and training files, that begin so."""
    from rrf.presets import PRESETS

    start = Path(incomplete)
    files = start.parent.glob(f"{start.name}*.yaml") if "/" in incomplete else ()
    known = (*PRESETS, *PRESETS.aliases)
    return [*(name for name in known if name.startswith(incomplete)), *map(str, files)]


def complete_run(incomplete: str) -> list[str]:
    """Run directories that begin so."""
    here = Path.cwd()
    paths = [p.relative_to(here) if p.is_relative_to(here) else p for p in run_directories()]
    return [str(path) for path in paths if str(path).startswith(incomplete)]


def complete_dataset(incomplete: str) -> list[str]:
    """Datasets of this workspace that begin so."""
    from rrf import workspace

    folder = workspace.home() / "datasets"
    marks = folder.glob("*/meta/info.json") if folder.is_dir() else ()
    names = sorted(mark.parents[1].name for mark in marks)
    return [name for name in names if name.startswith(incomplete)]


def complete_override(context: typer.Context, incomplete: str) -> list[str]:
    """`dataset=NAME` with the datasets of this workspace. Bash splits words at the "="."""
    before = (context.params.get("overrides") or [])[-2:]
    if before == ["dataset", "="]:
        return complete_dataset(incomplete)
    if before[-1:] == ["dataset"] and not incomplete:
        return complete_dataset("")
    field, equals, start = incomplete.partition("=")
    if field == "dataset" and equals:
        return [f"dataset={name}" for name in complete_dataset(start)]
    return []


def run_directories() -> list[Path]:
    """The directories of runs in .rrf/runs."""
    from rrf import workspace

    folder = workspace.state() / "runs"
    marks = ("run.json", "result.json")
    here = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in here if any((path / mark).is_file() for mark in marks))


def _written(path: Path) -> float:
    return max(child.stat().st_mtime for child in [path, *_children(path)])


def _children(path: Path) -> Iterator[Path]:
    yield from path.glob("*.json")
    yield from path.glob("global_step_*")


def _newest_step(path: Path) -> int | None:
    names = [child.name.rpartition("_")[2] for child in path.glob("global_step_*")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _about(preset: str) -> str:
    """What a preset is, in a line; why it cannot be loaded, if it is of a plugin that fails."""
    from rrf.presets import PRESETS

    try:
        function = PRESETS.get(preset)
    except Exception as error:  # the code is not ours and may raise anything
        return f"cannot be loaded: {type(error).__name__}: {error}"
    return " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
