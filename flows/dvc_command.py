"""`python -m flows.dvc_command FILE WORDS`: `dvc WORDS`, whose errors go to FILE by their classes.

DVC ends with exit code 1 or 255 whatever has failed, and says what in English. Within its process
the errors are exceptions, which it logs; FILE gets the names of their classes, as JSON.

A DVC (3.67) that is killed while it pulls leaves half of its list of files in its site cache. The
next one believes the list, fetches only what is in it, and cannot check out the rest. So the list
is thrown away then, and the command is run once more.
"""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

_MISSING = "CheckoutError"


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


def run(words: Sequence[str]) -> tuple[int, list[str]]:
    """Run DVC in this process; returns its exit code and the classes of its errors."""
    from dvc.cli import main as dvc

    collector = _Collector()
    logging.getLogger("dvc").addHandler(collector)
    try:
        code = dvc([*words])
        if code and _MISSING in collector.names:
            _forget_files()
            collector.names.clear()
            code = dvc([*words])
        return code, collector.names
    finally:
        logging.getLogger("dvc").removeHandler(collector)


def _forget_files() -> None:
    """Throw DVC's lists of files away; it makes them anew."""
    from dvc.repo import Repo

    with Repo() as repo, repo.lock:
        repo.drop_data_index()


def main() -> None:
    """Run DVC; its exit code is that of this process."""
    path, *words = sys.argv[1:]
    code, names = run(words)
    Path(path).write_text(json.dumps(names))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
