"""What recordings say about themselves that their files do not hold. None of it stops a conversion;
all of it belongs into the validation report.
"""

import typing
from collections.abc import Mapping

from rrf.data.raw import Source

NOT_ON_DISK = "(not on disk)"


@typing.runtime_checkable
class Audited(typing.Protocol):
    """A source whose format has claims that can be checked without reading episodes."""

    def audit(self) -> list[str]: ...


def audit(source: Source, keys: Mapping[str, str]) -> list[str]:
    """One sentence per claim that does not hold.

    Args:
        source: The recordings.
        keys: What `source.keys()` gives.
    """
    warnings = [
        f"'{key}' is declared but not on disk"
        for key, kind in keys.items()
        if kind.endswith(NOT_ON_DISK)
    ]
    return warnings + (source.audit() if isinstance(source, Audited) else [])


def failures(num_failed: int, total: int, are_left_out: bool) -> str:
    """The warning that episodes of a file have failed, and what became of them."""
    what = "kept, as the config says (only_successful: false)"
    if are_left_out:
        what = "left out; to keep them, write options: {only_successful: false}"
    return f"{num_failed} of {total} episodes failed and are {what}"
