"""`rrf data`: record demonstrations, convert, validate and publish datasets, look at one."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Robot data: collect, convert, validate, publish.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A dataset: NAME of configs/datasets/NAME.yaml.")]


@app.command()
def collect(
    tasks: Annotated[
        str,
        typer.Option(help="Meta-World tasks, comma-separated, or all; the demo's ten by default."),
    ] = "",
    episodes: Annotated[int, typer.Option(help="Successful demonstrations to keep per task.")] = 25,
    seed: Annotated[int, typer.Option(help="Seed of the initial states and the noise.")] = 777,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the recordings; datasets/raw/metaworld.")
    ] = None,
    max_steps: Annotated[
        int, typer.Option(help="Actions after which an attempt counts as failed.")
    ] = 50,
    workers: Annotated[int, typer.Option(help="Processes, each recording whole tasks.")] = 2,
    image_size: Annotated[int, typer.Option(help="Height and width of images, px.")] = 64,
    force: Annotated[bool, typer.Option(help="Record again what is already there.")] = False,
) -> None:
    """Record demonstrations by the simulator's scripted experts, one HDF5 file per task."""
    from rich.table import Table

    from rrf import workspace
    from rrf.envs.collect import CollectCfg, Progress, collect
    from rrf.envs.metaworld_tasks import TASKS

    cfg = CollectCfg(
        episodes=episodes,
        seed=seed,
        max_episode_steps=max_steps,
        image_size=image_size,
        out=str(out or workspace.home() / "datasets" / "raw" / "metaworld"),
        num_workers=workers,
        force=force,
    )
    if tasks:
        names = TASKS if tasks == "all" else tasks.split(",")
        cfg = cfg.replace(tasks=[task.strip() for task in names])
    with _progress_bars(*cfg.tasks) as bars:

        def on_progress(progress: Progress) -> None:
            bars[progress.task](progress.episodes, progress.wanted, f"{progress.frames} frames")

        recorded = collect(cfg, on_progress)
    table = Table(title=f"recordings in {_shown(Path(cfg.out))}")
    table.add_column("task")
    for column in ("episodes", "frames", "attempts", "MB"):
        table.add_column(column, justify="right")
    for one in recorded:
        size = f"{one.path.stat().st_size / 1e6:.2f}"
        attempts = "kept" if one.is_reused else str(one.attempts)
        table.add_row(one.task, str(one.episodes), str(one.frames), attempts, size)
    _print(table)


@app.command()
def convert(
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; datasets/converted/NAME.")
    ] = None,
) -> None:
    """Convert raw recordings to LeRobot v3, replacing the earlier conversion once complete."""
    from rrf.data.convert import convert
    from rrf.data.dataset_cfg import dataset_paths, load_dataset_cfg

    cfg = load_dataset_cfg(name)
    paths = dataset_paths(cfg)
    with _progress_bars("converting") as bars:
        frames = convert(cfg, paths.raw, out or paths.converted, bars["converting"])
    _print(f"{frames} frames in {_shown(out or paths.converted)}")


@app.command()
def validate(name: Name) -> None:
    """Check the converted dataset; exit code 1 if it must not be used. Writes JSON and HTML."""
    from rrf.data.dataset_cfg import dataset_paths, load_dataset_cfg
    from rrf.data.validate import HTML_NAME, validate

    cfg = load_dataset_cfg(name)
    paths = dataset_paths(cfg)
    with _progress_bars("validating") as bars:
        report = validate(name, paths.converted, cfg.checks, paths.reports, bars["validating"])
    _print_checks(report)
    _print(f"report: {_shown(paths.reports / HTML_NAME)}")
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def stats(name: Name) -> None:
    """Publish the converted dataset, if it passed, with the statistics training normalises by."""
    from rrf.data.dataset_cfg import dataset_paths, load_dataset_cfg
    from rrf.data.publish import publish

    paths = dataset_paths(load_dataset_cfg(name))
    norm_stats = publish(paths.converted, paths.reports, paths.published)
    _print_stats(paths.published, norm_stats)


@app.command()
def show(name: Name) -> None:
    """What a published dataset holds: episodes per instruction, features, statistics."""
    from rich.table import Table

    from rrf.data import lerobot_layout as layout
    from rrf.data.dataset_cfg import dataset_paths, load_dataset_cfg
    from rrf.data.stats import read_norm_stats

    root = dataset_paths(load_dataset_cfg(name)).published
    info, episodes = layout.read_info(root), layout.read_episodes(root)
    table = Table(title=f"{name}: {len(episodes)} episodes, {info['total_frames']} frames")
    for column in ("instruction", "episodes", "frames"):
        table.add_column(column, justify="left" if column == "instruction" else "right")
    for task in layout.read_tasks(root):
        own = episodes[[task in tasks for tasks in episodes["tasks"]]]
        table.add_row(task, str(len(own)), str(own["length"].sum()))
    _print(table)
    features = Table(title="features")
    for column in ("key", "dtype", "shape", "names", "unit"):
        features.add_column(column)
    for key, feature in info["features"].items():
        names = ", ".join(feature["names"] or [])
        unit = (feature.get("info") or {}).get("unit", "")
        features.add_row(key, feature["dtype"], str(feature["shape"]), names, unit)
    _print(features)
    _print_stats(root, read_norm_stats(root))


@contextlib.contextmanager
def _progress_bars(*names: str) -> Iterator[dict[str, Callable[[int, int, str], None]]]:
    """Progress bars by name, each a function of (done, total, what is being worked on)."""
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


def _print_checks(report) -> None:
    from rich.table import Table

    colours = {"pass": "green", "warn": "yellow", "fail": "red", "crashed": "magenta"}
    wrong = [check for check in report.checks if check.status != "pass"]
    table = Table(title=f"{report.name}: {'passed, with warnings' if report.passed else 'FAILED'}")
    for column in ("result", "check", "what must hold", "where it does not"):
        table.add_column(column, overflow="fold")
    for check in wrong:
        places = [str(finding) for finding in check.findings[:3]]
        places += [f"and {check.num_bad - 3} more"] * (check.num_bad > 3)
        result = f"[{colours[check.status]}]{check.status}"
        table.add_row(result, check.check, check.title, _plain("\n".join(places)))
    if wrong:
        _print(table)
    _print(f"{report.name}: {len(report.checks) - len(wrong)} of {len(report.checks)} checks hold")


def _print_stats(root: Path, norm_stats: dict) -> None:
    from rich.table import Table

    from rrf.data import lerobot_layout as layout

    schema = layout.schema_of(layout.read_info(root))
    columns = ("min", "q01", "mean", "q99", "max", "std")
    table = Table(title=f"statistics of {_shown(root)}")
    table.add_column("dimension")
    for column in columns:
        table.add_column(column, justify="right")
    for key, vector in (("observation.state", schema.state), ("action", schema.action)):
        for index, name in enumerate(vector.names):
            values = [f"{norm_stats[key][column][index]:.4g}" for column in columns]
            table.add_row(f"{key.removeprefix('observation.')}.{name}", *values)
    _print(table)


def _shown(path: Path) -> Path:
    """The path relative to here where that is shorter."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print(thing) -> None:
    from rich.console import Console

    Console().print(thing)
