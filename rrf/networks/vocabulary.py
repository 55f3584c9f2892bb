"""Words of language instructions. This file imports no torch."""

import re
from collections.abc import Iterable


def words_of(instruction: str) -> list[str]:
    """The words of a sentence in lower case; hyphens and digits belong to words, other marks do
    not."""
    return re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", instruction.lower())


def vocabulary_of(instructions: Iterable[str]) -> list[str]:
    """Every word of the instructions once, sorted."""
    return sorted({word for instruction in instructions for word in words_of(instruction)})
