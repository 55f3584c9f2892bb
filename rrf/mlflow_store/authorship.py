"""Descriptions that rrf keeps up to date, and how it tells them from those of a person.

A description written by rrf ends with a line that says so and holds a digest of the text above it.
If a person edits the text, the digest no longer matches, and rrf never overwrites it. If a person
empties the text, rrf writes it again.
"""

import hashlib
import re

NOTES = "mlflow.note.content"
"""The tag that MLflow's pages show as the description of a run."""
_LONGEST = 5000  # characters, the width of the columns in MLflow's databases
_FOOTER = "*Written by rrf, which keeps this up to date until somebody edits it ({}).*"
_SIGNED = re.compile("(.*)\n" + re.escape(_FOOTER).replace(r"\{\}", "([0-9a-f]{8})"), re.DOTALL)
ROOM = _LONGEST - len(_FOOTER) - 16
"""Largest number of characters of a description without its last line; longer text is cut."""


def signed(text: str) -> str:
    """The text with the last line that marks it as written by rrf."""
    text = _as_editors_keep_it(text[:ROOM])
    return f"{text}\n\n{_FOOTER.format(_digest(text))}"


def is_ours(description: str | None) -> bool:
    """Whether rrf may overwrite a description: it is empty, or nobody has edited it."""
    text = _as_editors_keep_it(description or "")
    match = _SIGNED.fullmatch(text)
    return not text or (match is not None and _digest(_as_editors_keep_it(match[1])) == match[2])


def _as_editors_keep_it(text: str) -> str:
    """The text without what editors change unasked: line ends and spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
