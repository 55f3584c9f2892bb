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
