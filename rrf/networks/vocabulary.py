"""The words of language instructions. This file does not import torch."""

import re
from collections.abc import Iterable


def words_of(instruction: str) -> list[str]:
    """The words of a sentence in lower case.

    Digits and inner hyphens are part of a word; other characters separate words.
    """
    return re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", instruction.lower())


def vocabulary_of(instructions: Iterable[str]) -> list[str]:
    """The distinct words of the instructions, sorted."""
    return sorted({word for instruction in instructions for word in words_of(instruction)})
