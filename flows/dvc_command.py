"""`python -m flows.dvc_command FILE WORDS`: `dvc WORDS`, whose errors go to FILE by their classes.

DVC ends with exit code 1 or 255 whatever has failed, and says what in English. Within its process
the errors are exceptions, which it logs; FILE gets the names of their classes, as JSON.
"""

import json
import logging
import sys
from pathlib import Path


class _Collector(logging.Handler):
    """Collects the classes of all exceptions that are logged, with their causes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            self.names += [kind.__name__ for kind in type(error).__mro__[:-2]]
            error = error.__cause__ or error.__context__


def main() -> None:
    """Run DVC; its exit code is that of this process."""
    from dvc.cli import main as dvc

    path, *words = sys.argv[1:]
    collector = _Collector()
    logging.getLogger("dvc").addHandler(collector)
    code = dvc(words)
    Path(path).write_text(json.dumps(collector.names))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
