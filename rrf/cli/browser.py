"""`rrf open`, and pages that a browser shows if there is one."""

import os
import sys
from typing import Annotated

import typer


def open_(
    what: Annotated[
        str,
        typer.Argument(
            help="NAME@champion, NAME/3, a run directory, or the id of an MLflow or Prefect run."
        ),
    ],
    browse: Annotated[
        bool, typer.Option(help="Open the page in a browser, if there is one.")
    ] = True,
) -> None:
    """Find the page of a version, a training or a flow run on today's server, and open it."""
    from rrf.registry.links import is_local, page_of

    address = page_of(what)
    typer.echo(address)
    if is_local(address) and not _answers(address):
        raise ValueError(f"no server answers at {address}; `rrf services up` starts one")
    if browse:
        show(address)


def show(address: str) -> None:
    """Open a page in a browser, if this machine has a screen."""
    has_screen = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if has_screen:
        import webbrowser

        webbrowser.open(address)


def _answers(address: str) -> bool:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((parts.hostname, parts.port or 80)) == 0
