"""`rrf envs`: interpreters of their own for simulators that cannot share ours."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Interpreters of their own for simulators: set up, add, list.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the interpreter, e.g. robosuite.")]


@app.command()
def setup(
    name: Name,
    force: Annotated[bool, typer.Option(help="Make it again even if it is there.")] = False,
    source: Annotated[
        Path | None,
        typer.Option(help="A clone of the repository that the lock names, instead of its address."),
    ] = None,
) -> None:
    """Make .rrf/envs/NAME, a virtual environment, from the pins in configs/envs/NAME.lock.

    An interrupted setup goes on when it is repeated. When the lock has changed, it is made anew.
    """
    from rrf.envs.foreign import interpreters

    is_new = interpreters.setup(name, force, typer.echo, source)
    interpreter = interpreters.interpreter(name)
    what = "set up" if is_new else "there already"
    version, packages = interpreter.record["python_version"], interpreter.record["packages"]
    typer.echo(
        f"{name} is {what}: Python {version}, {len(packages)} packages, {interpreter.python}"
    )


@app.command()
def add(
    name: Name,
    python: Annotated[Path, typer.Argument(help="Its Python, 3.8 or newer, with NumPy.")],
    cwd: Annotated[
        Path | None, typer.Option(help="Directory it runs in; by default that of rrf.")
    ] = None,
    variable: Annotated[
        list[str] | None, typer.Option(help="Environment variable KEY=VALUE; may be repeated.")
    ] = None,
) -> None:
    """Note an interpreter that exists, for instance the one that a simulator brings."""
    from rrf.envs.foreign import interpreters

    pairs = [text.partition("=") for text in variable or []]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ValueError(f"--variable is '{key}', but must be like KEY=VALUE")
    variables = {key: value for key, _, value in pairs}
    interpreter = interpreters.add(name, python, cwd, variables)
    typer.echo(
        f"{name} is noted: Python {interpreter.record['python_version']}, {interpreter.python}"
    )


@app.command("list")
def list_(
    packages: Annotated[
        bool, typer.Option(help="Show the packages of each, with their licences.")
    ] = False,
) -> None:
    """Show which interpreters are set up here, and which could be."""
    from rich.table import Table

    from rrf.cli.tables import print_table
    from rrf.envs.foreign import interpreters

    table = Table(box=None, header_style="bold")
    for column in ("name", "Python", "packages", "state"):
        table.add_column(column)
    names = sorted({*interpreters.locks(), *interpreters.names()})
    for name in names:
        try:
            record = interpreters.interpreter(name).record
        except ValueError as error:
            table.add_row(name, "-", "-", str(error))
            continue
        table.add_row(name, record["python_version"], str(len(record["packages"])), "set up")
        if packages:
            for package in record["packages"]:
                table.add_row("", "", f"{package['name']} {package['version']}", package["licence"])
    if not names:
        typer.echo("no interpreters: configs/envs has no locks, and none was added")
        return
    print_table(table)
