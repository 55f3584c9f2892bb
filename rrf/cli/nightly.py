"""`rrf nightly`: how champions do from night to night, and alarms that somebody has seen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrf.cli.nightly_bisect import bisect
from rrf.cli.result_file import with_result_file
from rrf.cli.tables import print_table, success

if TYPE_CHECKING:
    from rrf.registry.nights import Series

app = typer.Typer(help="The nightly benchmark: its state, and its alarms.", no_args_is_help=True)
app.command()(with_result_file(bisect))
_COLUMNS = ("model", "version", "protocol", "nights", "last night", "success [95 %]", "reference",
            "CUSUM", "state")  # fmt: skip


@app.command()
@with_result_file
def status(
    model: Annotated[str | None, typer.Argument(help="A model; by default all models.")] = None,
    pages: Annotated[
        Path | None,
        typer.Option(help="Folder to write pages to: index.html, and one of each champion."),
    ] = None,
) -> None:
    """Show the nights of the champions: success, the CUSUM and its threshold, red or green."""
    from rich.table import Table

    from rrf.registry import listing
    from rrf.registry.nights import series_of

    models = [model] if model else listing.models()
    all_series = [series for name in models for series in series_of(name)]
    if not all_series:
        typer.echo("no nights yet; the flow nightly-benchmark adds one every night")
        return
    table = Table(*_COLUMNS, box=None, header_style="bold")
    for series in all_series:
        table.add_row(*_row(series), "[red]red[/]" if series.is_red else "[green]green[/]")
    print_table(table)
    for series in all_series:
        _tell(series, details=model is not None)
    if pages:
        _write_pages(all_series, pages)


@app.command()
@with_result_file
def speeds() -> None:
    """Show the speeds of trainings from night to night (`configs/nightly.yaml` says of which)."""
    from rich.table import Table

    from rrf.registry import speeds

    nights = speeds.history()
    if not nights:
        typer.echo("no speeds yet; name trainings in configs/nightly.yaml, under speeds")
        return
    table = Table("training", "night", "steps per CPU second", "of the first", "commit", box=None)
    told = speeds.compared(nights)
    for one in told:
        night, number = one.night, f"{one.night.steps_per_cpu_s:.4g}"
        table.add_row(night.key, night.time, number, f"{one.share:.2f}", night.commit[:12])
    print_table(table)
    for fell in (one.fell for one in told if one.fell):
        typer.secho(fell, fg="red")


@app.command()
@with_result_file
def ack(
    model: Annotated[str, typer.Argument(help="Name of a registered model.")],
    reason: Annotated[str, typer.Option(help="What is known about the alarm; kept with it.")],
    as_reference: Annotated[
        bool,
        typer.Option(
            "--as-reference",
            help="Compare later nights with the last one, no longer with the promotion.",
        ),
    ] = False,
) -> None:
    """Acknowledge the alarms of a champion; the nights are green again until the next alarm.

    The rules begin anew. A fall that goes on raises another alarm, unless the last night becomes
    the reference.
    """
    from rrf.registry.nights import acknowledge

    for series in acknowledge(model, reason, as_reference):
        also = "; its last night is the reference from now on" if as_reference else ""
        typer.echo(f"acknowledged {series.title}: {reason}{also}")


def _write_pages(all_series: "list[Series]", folder: Path) -> None:
    from rrf import atomic
    from rrf.evaluation.nightly.overview import overview_page, row_of
    from rrf.registry import night_changes, night_record, speeds

    rows, notes = [], []
    for series in all_series:
        page = f"{series.model}-{series.version}-{series.protocol}.html"
        atomic.write_text(folder / page, night_record.page_of(series))
        rows.append(row_of(series.title, page, series.points))
        told = [*series.alarms, *night_changes.told(series)]
        notes += [f"{series.title}: {line}" for line in told]
    told = speeds.compared(speeds.history())
    notes += [one.fell for one in told if one.fell]
    index = folder / "index.html"
    atomic.write_text(index, overview_page(rows, night_record.speed_rows(told), notes))
    typer.echo(f"page of all nights {index}; it links {len(rows)} trend pages")


def _row(series: "Series") -> tuple[str, ...]:
    from rrf.evaluation.nightly.series import ALL, together

    last = series.points[-1]
    rate, rule = together(last.night.tasks)[ALL].rate, last.rules.get(ALL)
    return (
        series.model,
        series.version,
        series.protocol,
        str(len(series.points)),
        last.night.time,
        success(rate.rate, rate.low, rate.high, rate.episodes),
        f"{series.levels[ALL].rate.rate:.1%}",
        f"{last.statistics[ALL]:g} of {rule.threshold:g}" if rule else "-",
    )


def _tell(series: "Series", details: bool) -> None:
    from rrf.evaluation.nightly.series import after_an_alarm

    for alarm in series.alarms:
        typer.secho(f"{series.title}, {alarm}", fg="red")
    if series.is_red:
        typer.echo(after_an_alarm(series.model))
    if details:
        from rrf.registry import night_changes

        for change in night_changes.told(series):
            typer.echo(f"{series.title}: {change}")
        for difference in series.points[-1].night.differences:
            typer.echo(f"{series.title}: {difference}")
        for point in series.points:
            for ack in point.night.acks:
                typer.echo(
                    f"{series.title}, night of {point.night.time}: acknowledged {ack.time} by "
                    f"{ack.actor}: {ack.reason}"
                )
