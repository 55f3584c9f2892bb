"""`rrf models split` and `join`: the two parts of a policy as artifacts of their own."""

from pathlib import Path
from typing import Annotated

import typer

from rrf.cli.result_file import with_result_file


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


@with_result_file
def join(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="What `rrf models split` wrote to system2/ and to system1/, here or elsewhere; "
            "or, with --system0, one whole policy."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    system0: Annotated[
        str | None,
        typer.Option(help="A whole-body policy to put below: checkpoint, or NAME@champion."),
    ] = None,
    feature_period: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Where it is evaluated, System 2 looks at each so many-th chunk; by default as "
            "System 1 says.",
        ),
    ] = None,
) -> dict:
    """Write the policy of a System 2 and a System 1 that was trained with it, or a combination with
    a System 0.

    Systems 2 and 1 may come from different trainings, if the later one left System 2 as it was
    (policy.freezes_system2). Others are refused: their features mean something else. A System 0
    must take what System 1 sends. Each combination is a policy of its own, to be evaluated as one.
    """
    import tempfile

    from rrf.cli.policy_reference import locate
    from rrf.hierarchy.combination import combine
    from rrf.runners.checkpoints import checkpoint as checkpoints
    from rrf.runners.checkpoints import parts

    checkpoints.require_new(out)
    found = [locate(system)[0] for system in systems]
    with tempfile.TemporaryDirectory() as folder:
        match found:
            case [upper] if system0:
                pass
            case [system2, system1]:
                where = Path(folder) / "upper" if system0 else out
                upper = parts.join(system2, system1, where, feature_period)
            case _:
                raise ValueError(
                    f"{len(systems)} systems are given, expected System 2 and System 1, or one "
                    "policy with --system0"
                )
        if system0:
            combine(upper, locate(system0)[0], out)
    typer.echo(
        f"the policy of {' and '.join([*systems, *([system0] if system0 else [])])} is at {out}"
    )
    return {"checkpoint": str(out)}
