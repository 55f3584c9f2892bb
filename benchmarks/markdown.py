"""Markdown tables, and the marks of pages between which they stand."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table, a line per row."""
    lines = [_line(columns), "|---" * len(columns) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def filled(path: Path, contents: dict[str, str]) -> str:
    """A page with each content between the marks of its name.

    Raises:
        ValueError: For a page without these marks.
    """
    text = path.read_text()
    for mark, content in contents.items():
        between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        if not between.search(text):
            raise ValueError(f"{path} has no marks <!-- {mark} --> and <!-- /{mark} -->")
        inside = f"\n{content.rstrip()}\n\n"
        text = between.sub(lambda marks, inside=inside: marks[1] + inside + marks[2], text)
    return text
