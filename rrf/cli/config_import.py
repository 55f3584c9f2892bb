"""`rrf import-config`: a config of RLinf, or of Isaac Lab's extension of it, as a training file."""

from pathlib import Path
from typing import Annotated

import typer

from rrf import atomic
from rrf.cli.options import Imports, check_output, import_modules


def import_config(
    file: Annotated[
        Path, typer.Argument(help="A YAML file of RLinf's embodied training.", dir_okay=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Dotted overrides of our config: ray=null")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The training file to write.", dir_okay=False)
    ] = None,
    search_path: Annotated[
        list[Path] | None,
        typer.Option(
            help="A directory with the groups that its `defaults` name, besides its own. May be "
            "repeated.",
            file_okay=False,
        ),
    ] = None,
    keys: Annotated[bool, typer.Option(help="Say of every key what became of it.")] = False,
    imports: Imports = None,
) -> None:
    """Make a training file for `rrf train` of a config of RLinf, key by key.

    Without --out, the file is printed. Every key whose value has no counterpart is named.
    """
    from rrf.presets.rlinf.training_file import import_config as imported_from

    import_modules(imports)
    if out is not None:
        check_output(out)
    imported = imported_from(file, search_path or [], overrides or [])
    rows = imported.rows
    if keys:
        for row in rows:
            became = f"{row.ours}: {row.text}" if row.ours else row.text
            mark = "->" if row.ours else " =" if row.is_harmless else " !"
            typer.echo(f"{mark} {row.path}={row.value}  {became}")
    lacking = [row for row in rows if row.ours is None and not row.is_harmless]
    mapped, harmless = sum(row.ours is not None for row in rows), sum(r.is_harmless for r in rows)
    text = imported.text()
    if out is None and not keys:
        typer.echo(text, nl=False)
    for row in lacking if not keys else ():
        typer.echo(f"without counterpart: {row.path}={row.value}: {row.text}", err=True)
    typer.echo(
        f"{file.name}: {mapped} keys have a counterpart, {harmless} change nothing here, "
        f"{len(lacking)} have none; the nearest preset is {imported.preset}",
        err=True,
    )
    for row in rows:
        if row.ours == "init_from":
            typer.echo(f"it begins with {row.path}: {row.text}", err=True)
    if out is not None:
        atomic.write_text(out, text)
        typer.echo(f"training file {out}: rrf train {out} init_from=CHECKPOINT")
