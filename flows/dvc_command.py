"""`python -m flows.dvc_command FILE WORDS [--then WORDS]...`: `dvc WORDS`, one after the other.

A process of DVC takes longer to begin than to find that nothing has changed, so one does several
commands, up to the first that fails. DVC ends with exit code 1 or 255 whatever has failed, and says
what in English. Within its process the errors are exceptions, which it logs. FILE gets JSON with

    errors   the names of their classes
    cloud    what `status --cloud PATH...`, asked at the end, has answered: path -> state, or null

A DVC (3.67) that is killed while it pulls leaves half of its list of files in its site cache. The
next one believes the list, fetches only what is in it, and cannot check out the rest. So the list
is thrown away then, and the command is run once more.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

THEN = "--then"
CLOUD = ["status", "--cloud"]
_REMOTE_S = 60  # a remote that does not answer by then says nothing
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


def in_remote(paths: Sequence[str]) -> dict[str, str] | None:
    """What of these paths DVC's default remote lacks, and how; None if nobody can say."""
    from dvc.repo import Repo

    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_REMOTE_S)
    try:
        with Repo() as repo:
            return dict(repo.status(targets=[*paths], cloud=True))
    except Exception as error:  # of any library of any remote
        sys.stdout.write(f"whether DVC's remote holds the recordings is not known: {error}\n")
        return None
    finally:
        signal.alarm(0)


def _give_up(*_) -> None:
    """End this process, whatever its threads wait for: all but the answer is in FILE."""
    sys.stdout.write(f"DVC's remote has not answered for {_REMOTE_S} s\n")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Run DVC; its exit code is that of this process."""
    path, *words = sys.argv[1:]
    answers: dict = {"errors": [], "cloud": None}
    code, asked = 0, None
    for command in _commands(words):
        if command[: len(CLOUD)] == CLOUD:
            asked = command[len(CLOUD) :]
        elif not code:
            code, answers["errors"] = run(command)
    Path(path).write_text(json.dumps(answers))
    if asked and not code:
        answers["cloud"] = in_remote(asked)
        Path(path).write_text(json.dumps(answers))
    raise SystemExit(code)


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    rest = [*words]
    while THEN in rest:
        place = rest.index(THEN)
        yield rest[:place]
        rest = rest[place + 1 :]
    yield rest


if __name__ == "__main__":
    main()
