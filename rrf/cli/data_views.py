"""`rrf data show`, `view`, `report`, `diff` and `card`: inspect datasets, frame by frame too."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli import browser
from rrf.cli.data_display import plain, print_stats, progress_bars, say, shown
from rrf.cli.data_download import bring
from rrf.cli.data_edit import episode_list

Target = Annotated[
    str,
    typer.Argument(
        help="Dataset NAME, as in configs/datasets/NAME.yaml, or the directory of any LeRobot "
        "dataset."
    ),
]
_MAX_ROWS = 20


def show(target: Target) -> None:
    """Show the content of a dataset: episodes per instruction, features, statistics."""
    from rich.table import Table

    from rrf.data.validation.summary import describe_feature, duration, find_dataset, read_summary

    place = find_dataset(target)
    with progress_bars("reading") as bars:
        summary = read_summary(place.root, bars["reading"])
    episodes, frames, fps = len(summary.episodes), summary.num_frames, summary.fps
    robot, version = summary.info.get("robot_type"), summary.info["codebase_version"]
    say(f"{plain(place.name)}: {episodes} episodes, {frames} frames, {duration(frames / fps)}")
    say(f"{shown(place.root)}: LeRobot {version}, {fps:g} frames/s, robot {plain(str(robot))}")
    table = Table(title="instructions")
    for column in ("instruction", "episodes", "frames"):
        table.add_column(column, justify="left" if column == "instruction" else "right")
    for task, (num_episodes, num_frames) in summary.instructions().items():
        table.add_row(plain(task), str(num_episodes), str(num_frames))
    say(table)
    if summary.annotations:
        annotations = Table(title="language annotations")
        for column in ("style", "episodes", "rows"):
            annotations.add_column(column, justify="left" if column == "style" else "right")
        for style, counts in summary.annotations.items():
            annotations.add_row(plain(style or "(tool calls)"), *map(str, counts))
        say(annotations)
    features = Table(title="features")
    for column in ("key", "dtype", "shape", "names", "unit"):
        features.add_column(column, overflow="fold")
    for key in summary.info["features"]:
        dtype, shape, names, unit = describe_feature(summary, key)
        features.add_row(plain(key), dtype, plain(shape), plain(names), plain(unit))
    say(features)
    print_stats(summary)
    for warning in summary.warnings:
        say(f"[yellow]warning:[/] {plain(warning)}")


def report(
    target: Target,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default datasets/reports/NAME/dataset.html, or a file in the "
            "working directory if the dataset is given as a directory."
        ),
    ] = None,
) -> None:
    """Write an HTML page about a dataset: clips, plots per dimension, instructions, its card."""
    from rrf.data.pages.dataset_report import HTML_NAME, write_report
    from rrf.data.validation.summary import find_dataset

    place = find_dataset(target)
    if out is None:
        out = place.reports / HTML_NAME if place.reports else Path(f"{place.name}.html")
    with progress_bars("reading", "clips") as bars:
        write_report(place, out, bars["reading"], bars["clips"])
    say(f"report: {shown(out)}")


def diff(
    before: Target,
    after: Target,
    images: Annotated[
        bool, typer.Option(help="Compare pixels too; this decodes all images.")
    ] = True,
) -> None:
    """Compare two datasets: the content of episodes, and statistics. Exit code 1 if they differ."""
    from rrf.data.validation.diff import diff_datasets
    from rrf.data.validation.summary import find_dataset

    places = find_dataset(before), find_dataset(after)
    with progress_bars("before", "after") as bars:
        difference = diff_datasets(
            places[0].root, places[1].root, images, bars["before"], bars["after"]
        )
    _print_properties(difference, *(str(shown(place.root)) for place in places))
    _print_episodes(difference)
    _print_drift(difference)
    if difference.is_different:
        raise typer.Exit(1)
    say("the datasets are the same" + ("" if images else "; images were not compared"))


def card(
    target: Target,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default the README.md of a published NAME. For any other "
            "dataset the card is printed."
        ),
    ] = None,
) -> None:
    """Write the dataset card: licence, provenance, schema, statistics, validation."""
    from rrf import atomic
    from rrf.data.pages.card import CARD, judgement, render_card
    from rrf.data.validation.summary import find_dataset, read_summary

    place = find_dataset(target)
    text = render_card(read_summary(place.root), judgement(place))
    if out is None and place.is_published and place.reports is not None:
        out = place.root / CARD
    if out is None:
        typer.echo(text, nl=False)
        return
    atomic.write_text(out, text)
    say(f"card: {shown(out)}")


def _print_properties(difference, before: str, after: str) -> None:
    from rich.table import Table

    table = Table(title="datasets")
    for column in ("", before, after):
        table.add_column(plain(column), overflow="fold")
    sizes = [
        (len(summary.episodes), summary.num_frames)
        for summary in (difference.before, difference.after)
    ]
    for name, pair in zip(("episodes", "frames"), zip(*sizes, strict=True), strict=True):
        table.add_row(name, *map(str, pair))
    for name, pair in difference.properties.items():
        table.add_row(plain(name), *map(plain, pair))
    say(table)


def _print_episodes(difference) -> None:
    from rich.table import Table

    rows = [
        ("[red]removed", str(episode.number), str(episode.length), episode.instruction, "")
        for episode in difference.removed
    ]
    rows += [
        ("[green]added", str(episode.number), str(episode.length), episode.instruction, "")
        for episode in difference.added
    ]
    rows += [
        (
            "[yellow]changed",
            _arrow(episode.before.number, episode.after.number),
            _arrow(episode.before.length, episode.after.length),
            _arrow(episode.before.instruction, episode.after.instruction),
            ", ".join(episode.keys),
        )
        for episode in difference.changed
    ]
    table = Table(title="episodes")
    for column in ("", "episode", "frames", "instruction", "what is different"):
        table.add_column(column, overflow="fold")
    for kind, *cells in rows[:_MAX_ROWS]:
        table.add_row(kind, *map(plain, cells))
    if rows:
        say(table)
    if len(rows) > _MAX_ROWS:
        say(f"and {len(rows) - _MAX_ROWS} more")
    say(
        f"{len(difference.same)} episodes are the same ({difference.num_renumbered} under another "
        f"number), {len(difference.changed)} changed, {len(difference.added)} added, "
        f"{len(difference.removed)} removed"
    )


def _print_drift(difference) -> None:
    from rich.table import Table

    if not difference.drift:
        return
    table = Table(title="statistics, before -> after (large drift in yellow)")
    table.add_column("dimension", overflow="fold")
    for column in ("mean", "std", "min", "max", "shift of the mean (std)"):
        table.add_column(column, justify="right")
    for drift in difference.drift:
        values = [f"{a:.4g} -> {b:.4g}" for a, b in (drift.mean, drift.std, drift.low, drift.high)]
        colour = "yellow" if drift.is_large else None
        table.add_row(plain(drift.dimension), *values, f"{drift.shift:.3g}", style=colour)
    say(table)


def _arrow(before, after) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def view(
    target: Target,
    episode: Annotated[str, typer.Option(help="Episodes to show: 3, or 0-4,9.")] = "0",
    raw: Annotated[
        bool, typer.Option("--raw", help="Show the raw recordings, before they are converted.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default datasets/reports/NAME/episodes.html, or a file in the "
            "working directory if the dataset is given as a directory."
        ),
    ] = None,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page if there is a display.")
    ] = True,
) -> None:
    """Show episodes in the browser: images, curves, instruction and keys, frame by frame.

    The page is one HTML file that needs no network. Of a dataset that was published, that version
    is shown, or else what was converted; --raw shows the recordings in their own terms.
    """
    from rrf.data.conversion.dataset_cfg import dataset_paths, load_dataset_cfg
    from rrf.data.pages.episode_view import view_dataset, view_recordings
    from rrf.data.validation.summary import find_dataset

    episodes = episode_list(episode)
    if raw:
        cfg = load_dataset_cfg(target)
        paths = dataset_paths(cfg)
        bring(cfg.source.path)
        out = out or paths.reports / "recordings.html"
        view_recordings(cfg, paths.raw, episodes, out)
    else:
        place = find_dataset(target)
        usual = place.reports / "episodes.html" if place.reports else None
        out = out or usual or Path(f"{place.name}-episodes.html")
        view_dataset(place.root, place.name, episodes, out)
    say(f"page: {shown(out)}")
    if browse:
        browser.show(out.resolve().as_uri())
