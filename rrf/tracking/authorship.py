"""Descriptions that this program keeps up to date, and how it knows them from a person's.

A description of ours ends with a line that says so and holds a digest of all above it. Whoever
edits the text breaks the digest: it is theirs from then on and never overwritten. Emptied, it is
ours again.
"""

import hashlib
import re

_LONGEST = 5000  # characters, the columns of MLflow's databases
_FOOTER = "*Written by rrf, which keeps this up to date until somebody edits it ({}).*"
_SIGNED = re.compile("(.*)\n" + re.escape(_FOOTER).replace(r"\{\}", "([0-9a-f]{8})"), re.DOTALL)
ROOM = _LONGEST - len(_FOOTER) - 16
"""Characters that a description of ours may have; what is longer is cut."""


def signed(text: str) -> str:
    """The text with the line that makes it ours."""
    text = _settled(text[:ROOM])
    return f"{text}\n\n{_FOOTER.format(_digest(text))}"


def is_ours(description: str | None) -> bool:
    """Whether a description may be overwritten: nobody has changed what we wrote, or there is
    none.
    """
    settled = _settled(description or "")
    found = _SIGNED.fullmatch(settled)
    return not settled or (found is not None and _digest(_settled(found[1])) == found[2])


def _settled(text: str) -> str:
    """Without what editors change unasked: line ends and blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
