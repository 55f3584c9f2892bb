"""`rrf models split` and `join`: the two parts of a policy as artifacts of their own."""

from pathlib import Path
from typing import Annotated

import typer


def split(
    checkpoint: Annotated[
        str,
        typer.Argument(help="A checkpoint or run directory, NAME@champion, or models:/NAME@alias."),
    ],
    out: Annotated[
        Path, typer.Option(help="Directory to create, with system1/ and system2/ in it.")
    ],
) -> None:
    """Write System 2 and System 1 of a policy in two parts, each as a checkpoint of its own."""
    from rrf.cli.policy_reference import locate
    from rrf.runners.checkpoints import checkpoint as checkpoints
    from rrf.runners.checkpoints import parts

    path, label = locate(checkpoint)
    checkpoints.require_new(out)
    system2, system1 = parts.split(path, out)
    typer.echo(f"the parts of {label} are at {system2} and {system1}")


def join(
    system2: Annotated[Path, typer.Argument(help="What `rrf models split` wrote to system2/.")],
    system1: Annotated[Path, typer.Argument(help="What it wrote to system1/, here or elsewhere.")],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
) -> None:
    """Write the policy of a System 2 and a System 1 that was trained with it.

    They may come from different trainings, if the later one left System 2 as it was
    (policy.freezes_system2). Others are refused: their features mean something else.
    """
    from rrf.runners.checkpoints import checkpoint as checkpoints
    from rrf.runners.checkpoints import parts

    checkpoints.require_new(out)
    parts.join(checkpoints.find(system2), checkpoints.find(system1), out)
    typer.echo(f"the policy of {system2} and {system1} is at {out}")
