"""The programs that flows run as processes of their own, first of all `rrf` and `dvc`.

A process per command keeps torch, renderers and their memory out of the flow, lets a cancelled
flow end training with SIGTERM (which saves a checkpoint), and gives each step a log file.
"""

import os
import sys
from pathlib import Path

from flows import progress
from flows.this_run import this_run
from rrf import processes, workspace

_NOT_IN_REMOTE = (
    "the DVC remote lacks recordings that datasets.dvc names; bring it back:"
    " `git checkout infra/dvc-demo`; or record anew: `rrf data collect`,"
    " then `dvc commit -f datasets.dvc`"
)
_HINTS = {
    "unsaved files": (
        "datasets/raw holds recordings that DVC does not know; keep them:"
        " `dvc commit -f datasets.dvc`; or go back: `dvc checkout --force datasets.dvc`"
    ),
    "files failed to download": _NOT_IN_REMOTE,
    "dvc.org/missing-files": _NOT_IN_REMOTE,
    "missing data 'source'": "the raw recordings are not here; run `dvc pull datasets.dvc` first",
}
GRACE_S = 20.0  # to save a checkpoint; Prefect kills a cancelled flow after 30 s


def rrf(step: str, *words: str | Path) -> list[str]:
    """Run `rrf WORDS`; its lines.

    Raises:
        processes.CommandError: If it fails, with its last lines and the path of its log.
    """
    return module(step, "rrf.cli", *words)


def module(step: str, name: str, *words: str | Path) -> list[str]:
    """Run `python -m NAME WORDS`; its lines. Raises as `rrf` does."""
    return _run(step, [sys.executable, "-m", name, *map(str, words)])


def dvc(step: str, *words: str | Path) -> list[str]:
    """Run `dvc WORDS`; its lines.

    Raises:
        ValueError: For what a user can mend, with the command that does.
        processes.CommandError: If it fails otherwise.
    """
    try:
        return module(step, "dvc", *words)
    except processes.CommandError as error:
        for mark, hint in _HINTS.items():
            if any(mark in line for line in error.tail):
                raise ValueError(f"{hint}\n{error}") from error
        raise


def _run(step: str, command: list[str]) -> list[str]:
    lines: list[str] = []
    report = progress.reporter(step)

    def on_line(line: str) -> None:
        lines.append(line)
        report(line)

    processes.run(
        command,
        log=workspace.state() / "logs" / f"{step}.log",
        on_line=on_line,
        cwd=workspace.home(),
        env=_environment(),
        grace_s=GRACE_S,
    )
    return lines


def _environment() -> dict[str, str]:
    """This checkout's code, this environment's `rrf`, which dvc.yaml calls by its bare name, and
    the flow run, which what the command records names.
    """
    flow_run = this_run()
    return (flow_run.environment() if flow_run else {}) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(workspace.home()),
        "COLUMNS": "120",
    }
