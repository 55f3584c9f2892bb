"""`rrf envs`: simulators, and interpreters of their own for those that cannot share ours."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Simulators: set up interpreters of their own, add, list, check.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the interpreter, e.g. robosuite.")]


@app.command()
def setup(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which, e.g. robosuite.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that have a lock.")] = False,
    force: Annotated[bool, typer.Option(help="Make it again even if it is there.")] = False,
    source: Annotated[
        Path | None,
        typer.Option(help="A clone of the repository that the lock names, instead of its address."),
    ] = None,
) -> None:
    """Make .rrf/envs/NAME, a virtual environment, from the pins in configs/envs/NAME.lock.

    It says first how much disk this takes. An interrupted setup goes on when it is repeated. When
    the lock has changed, it is made anew. One that fails does not keep the others from being made.
    """
    from rrf.envs.foreign import interpreters

    if bool(names) == every:
        raise ValueError(f"give names, or --all; there are: {', '.join(interpreters.locks())}")
    wanted = sorted(interpreters.locks()) if every else list(dict.fromkeys(names or []))
    if source is not None and len(wanted) != 1:
        raise ValueError("--source is for one interpreter; give its name")
    for line in interpreters.sizes(wanted):
        typer.echo(line)
    failed = {}
    for name in wanted:
        try:
            is_new = interpreters.setup(name, force, typer.echo, source)
        except ValueError as error:
            if len(wanted) == 1:
                raise
            failed[name] = error
            typer.echo(f"{name} failed: {error}", err=True)
            continue
        record, python = interpreters.interpreter(name).record, interpreters.folder() / name
        typer.echo(
            f"{name} is {'set up' if is_new else 'there already'}: Python "
            f"{record['python_version']}, {len(record['packages'])} packages, {python}"
        )
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(wanted)} could not be set up: {', '.join(failed)}; the reasons "
            "are above. Repeat the command when they are mended: what is there stays"
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


@app.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Simulators, e.g. libero; by default all."),
    ] = None,
    accept: Annotated[
        bool, typer.Option(help="Take what is seen now as what later checks compare with.")
    ] = False,
) -> None:
    """Begin episodes of every protocol: is the same seen as at the last check?

    If not, or at the first check, they are begun twice: is the same seen both times? No policy is
    needed. Fails if a simulator fails, and if one of those named is not set up.
    """
    from rrf.evaluation.protocols import checks

    paths, wrong = checks.protocols_of(names or []), []
    for number, path in enumerate(paths, 1):
        typer.echo(f"[{number}/{len(paths)}] {path.stem} ... ", nl=False)
        found = checks.check(path, accept)
        typer.echo(f"{found.state}: {found.said} ({found.simulator}, {found.seconds:.0f} s)")
        if found.state == checks.FAILED or (names and found.state == checks.ABSENT):
            wrong.append(path.stem)
    if wrong:
        raise ValueError(f"{len(wrong)} of {len(paths)} checks failed: {', '.join(wrong)}")
