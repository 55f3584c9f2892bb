"""What stands in the pages of the documentation: their code blocks, links and commands.

Where a page shows a file, a comment before the block names it, and `python -m tests.docs.pages`
writes the files into the pages again. (An include would be read by the site only, and not by
who opens the page on a code host.)
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FLAGS = re.MULTILINE | re.DOTALL
_BLOCK = re.compile(r"^( *)```(\w+)?[^\n]*\n(.*?)^\1```", _FLAGS)
_SHOWN = re.compile(r"^<!-- (\S+) -->\n(```[^\n]*\n)(.*?)^```$", _FLAGS)


def written() -> list[Path]:
    """The pages that people write."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    return [text for _, kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def commands(page: Path, program: str) -> Iterator[str]:
    """The lines of the bash blocks that call a program, without their comments."""
    for text in blocks(page, "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+#.*", "", line).strip()
            if line.split(" ", 1)[0] == program:
                yield line


def outputs(page: Path) -> list[str]:
    """The lines that the page says are printed: those of a text block right after commands. What
    the page leaves out stands there as …
    """
    found = re.findall(r"^```bash\n.*?^```\n\n```text\n(.*?)^```", page.read_text(), _FLAGS)
    return [line for text in found for line in text.splitlines() if line and "…" not in line]


def with_files(text: str) -> str:
    """The text of a page that shows its files as they are.

    Raises:
        FileNotFoundError: There is no file of a name that it has.
    """
    return _SHOWN.sub(
        lambda found: f"<!-- {found[1]} -->\n{found[2]}{(ROOT / found[1]).read_text()}```", text
    )


if __name__ == "__main__":
    for page in written():
        page.write_text(with_files(page.read_text()))
