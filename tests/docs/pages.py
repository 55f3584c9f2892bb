"""What stands in the pages of the documentation: their code blocks, links and commands."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^( *)```(\w+)?[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


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
