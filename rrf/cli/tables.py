"""Tables of models: as wide as the terminal, or wide enough for a line each in a file or a pipe."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: "Table") -> None:
    """Print a table."""
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)


def success(rate: float, low: float, high: float, episodes: int | str) -> str:
    """A success rate with its bounds."""
    return f"{rate:.1%} [{low:.1%}, {high:.1%}] n {episodes}"
