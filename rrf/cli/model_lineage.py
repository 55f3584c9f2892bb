"""`rrf models lineage`, `standing-on`, `taint` and `reproduce`: what versions stand on."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.options import Imports


def lineage(
    reference: Annotated[
        str, typer.Argument(help="NAME@champion, NAME/3, or NAME for its champion.")
    ],
    format: Annotated[
        str, typer.Option(help="text, json, openlineage (a JSON event per line), or svg.")
    ] = "text",
    out: Annotated[
        Path | None, typer.Option(help="A file to write instead of printing; .svg is a picture.")
    ] = None,
) -> None:
    """Show what a version stands on: promotions, evaluations, trainings, data, code."""
    import json

    from rrf import atomic
    from rrf.config import did_you_mean
    from rrf.registry import lineage_formats, lineage_graph

    formats = {
        "text": lineage_formats.text,
        "json": lambda graph: json.dumps(graph.to_dict(), indent=2),
        "openlineage": lambda graph: "\n".join(
            json.dumps(event) for event in lineage_formats.openlineage(graph)
        ),
        "svg": lineage_formats.svg,
    }
    if out is not None and out.suffix == ".svg":
        format = "svg"
    if format not in formats:
        raise ValueError(f"--format {format}{did_you_mean(format, formats)}")
    shown = formats[format](lineage_graph.of_version(reference))
    if out is None:
        typer.echo(shown)
    else:
        atomic.write_text(out, f"{shown.rstrip()}\n")
        typer.echo(f"the lineage of {reference} is in {out}")


def standing_on(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="NAME, a pattern of names, or NAME@VERSION with the beginning of its md5."
        ),
    ] = None,
    commit: Annotated[str, typer.Option(help="The beginning of a commit.")] = "",
    checkpoint: Annotated[str, typer.Option(help="The beginning of a checkpoint's digest.")] = "",
) -> None:
    """List the versions, of all models, that stand on a dataset, a commit or a checkpoint, also
    through the trainings that they started from."""
    from rrf.registry import lineage_graph

    if not (dataset or commit or checkpoint):
        raise ValueError("say on what: --dataset NAME@VERSION, --commit SHA or --checkpoint DIGEST")
    name, _, md5 = (dataset or "").partition("@")
    found = lineage_graph.standing_on(name or None, md5, commit, checkpoint)
    for standing in found:
        aliases = "".join(f" @{alias}" for alias in standing.version.aliases)
        where = f"{standing.version.name} {standing.version.version}{aliases}"
        typer.echo(f"{where}: {standing.why}")
    typer.echo(f"{len(found)} versions stand on it")


def taint(
    dataset: Annotated[
        str, typer.Argument(help="NAME for all of its versions, or NAME@VERSION (its md5).")
    ],
    reason: Annotated[str, typer.Option(help="What is wrong with it.")],
    episodes: Annotated[
        str, typer.Option(help="Which episodes are wrong, e.g. 3,17; by default all.")
    ] = "",
) -> None:
    """Say that data is wrong: versions that stand on it are not promoted, a canary that does is
    stopped, and champions that do are flagged. It is written to configs/tainted.yaml of this
    workspace; commit it."""
    from rrf.registry import standing, taints

    name, _, md5 = dataset.partition("@")
    numbers = [part.strip() for part in episodes.split(",") if part.strip()]
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(f"--episodes {episodes}: give their numbers, e.g. 3,17")
    taints.add(name, md5, [int(number) for number in numbers], reason)
    typer.echo(f"{dataset} is tainted; commit {taints.FILE}")
    for problem in standing.flagged().values():
        typer.secho(f"warning: {problem}", fg="red")


def reproduce(
    reference: Annotated[
        str, typer.Argument(help="NAME@champion, NAME/3, or NAME for its champion.")
    ],
    into: Annotated[
        Path | None,
        typer.Option(help="Folder for all of it; by default .rrf/reproduced/NAME-VERSION."),
    ] = None,
    bound: Annotated[
        float,
        typer.Option(help="A difference in success that is tolerated where bits differ.", min=0.0),
    ] = 0.05,
    locked: Annotated[
        bool,
        typer.Option("--locked", help="Install the commit's requirements.lock by uv, and use it."),
    ] = False,
    dirty: Annotated[
        bool,
        typer.Option("--dirty", help="Go on although code was not committed when it was trained."),
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change the config of a training on purpose: 1.seed=7 is the first one's seed. "
            "May be repeated.",
        ),
    ] = None,
    imports: Imports = None,
) -> dict:
    """Train and evaluate a version once more, from its commit, data and configs, and compare.

    The verdict is bit-identical, within the bound, or different, with the first stage that differs.
    The same command goes on after an interruption. Exit code 1: different.
    """
    from rrf import atomic, processes, workspace
    from rrf.registry import reproduction, reproduction_plan, versions

    version = versions.find(reference)
    folder = into or workspace.state() / "reproduced" / f"{version.name}-{version.version}"
    folder = folder.absolute()
    with atomic.alone(folder, f"another `rrf models reproduce` is at work in {folder}"):
        reproduction.begin(folder, {"model": version.name, "version": version.version})
        plan = reproduction_plan.plan(
            f"{version.name}/{version.version}",
            folder / reproduction.RECORDED,
            dirty,
            tuple(changes or ()),
        )
        count = len(plan.trainings)
        typer.echo(f"reproducing {version}: {count} trainings, in {folder}")
        reproducer = reproduction.Reproducer(
            plan, folder, typer.echo, bound, locked, tuple(imports or ())
        )
        try:
            result = reproducer.run()
        except processes.CommandError as error:
            raise ValueError(
                f"{error}\nthe same command goes on from here once that is put right"
            ) from error
    typer.echo(f"{version.name} version {version.version} is {result.verdict}: {result.why}")
    if result.verdict == "different":
        raise typer.Exit(1)
    return {"verdict": result.verdict, "folder": str(folder)}
