"""What an `rrf` command hands to the program that runs it: the file of its option --result-file."""

import dataclasses
from pathlib import Path
from typing import Any

from rrf import atomic


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The content of the file, which is JSON."""

    exit_code: int | None
    """None while the command runs, and for ever if it was killed."""
    error: str | None
    result: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write it beside `path`, and rename it."""
        atomic.write_json(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Outcome":
        """Raises ValueError if there is no outcome at `path`."""
        try:
            return cls(**atomic.parse_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"no result in {path}: {error}") from error
