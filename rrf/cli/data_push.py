"""`rrf data push`: a published dataset to the Hugging Face hub."""

from typing import Annotated

import typer

from rrf.cli.data_display import plain, say


def push(
    name: Annotated[
        str, typer.Argument(help="Published dataset NAME, as in configs/datasets/NAME.yaml.")
    ],
    to: Annotated[
        str, typer.Option(help="OWNER/NAME of the dataset on the hub; created if there is none.")
    ],
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody read a repository that is created now.")
    ] = False,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "",
) -> None:
    """Upload a published dataset to the Hugging Face hub, with its card and validation report.

    It goes up in one commit, which the tag v3.0 then names, as lerobot expects. A repository that
    is created is private unless --public is given. Log in before with: hf auth login
    """
    from rrf.data.transport.push import push
    from rrf.data.validation.summary import find_dataset

    done = push(find_dataset(name), to, public, message or None)
    say(plain(f"{done.files} files, {done.bytes / 1e6:.1f} MB, commit {done.revision}"))
    typer.echo(done.page)
    typer.echo(f"to read it: rrf data download {to} --revision {done.revision}")
