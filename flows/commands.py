"""Run commands in separate processes on behalf of flows, above all `rrf` and `dvc`.

One process per command has three advantages. Torch, renderers and their memory stay out of the
flow. A cancelled flow can end training with SIGTERM, which saves a checkpoint. And each step has
its own log file.
"""

import os
import sys
from pathlib import Path

from flows import progress
from flows.this_run import this_run
from rrf import processes, workspace

_NOT_IN_REMOTE = (
    "the DVC remote lacks recordings that datasets.dvc names; restore the remote:"
    " `git checkout infra/dvc-demo`; if another remote is the default, take them from this one:"
    " `dvc pull -r demo datasets.dvc`; or record them again: `rrf data collect`,"
    " then `dvc commit -f datasets.dvc`"
)
_HINTS = {
    "unsaved files": (
        "datasets/raw holds recordings that DVC does not know; to keep them:"
        " `dvc commit -f datasets.dvc`; to discard them: `dvc checkout --force datasets.dvc`"
    ),
    "files failed to download": _NOT_IN_REMOTE,
    "dvc.org/missing-files": _NOT_IN_REMOTE,
    "missing data 'source'": "the raw recordings are not here; run `dvc pull datasets.dvc` first",
}
GRACE_S = 20.0  # time to save a checkpoint; Prefect kills a cancelled flow after 30 s


def rrf(step: str, *words: str | Path) -> list[str]:
    """Run `rrf WORDS` and return the lines of its output.

    Raises:
        processes.CommandError: If it fails; the message has its last lines and the path of its log.
    """
    return module(step, "rrf.cli", *words)


def module(step: str, name: str, *words: str | Path) -> list[str]:
    """Run `python -m NAME WORDS` and return the lines of its output. Raises like `rrf`."""
    return _run(step, [sys.executable, "-m", name, *map(str, words)])


def dvc(step: str, *words: str | Path) -> list[str]:
    """Run `dvc WORDS` and return the lines of its output.

    Raises:
        ValueError: For a problem that the user can fix; the message names the command for it.
        processes.CommandError: If it fails for another reason.
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
    """Environment variables for a command.

    They select the code of this checkout and the `rrf` of this Python environment, which dvc.yaml
    calls by its bare name, and they name the flow run for the records of the command.
    """
    flow_run = this_run()
    return (flow_run.environment() if flow_run else {}) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(workspace.home()),
        "COLUMNS": "120",
    }
