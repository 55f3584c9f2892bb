"""Run commands in separate processes on behalf of flows, above all `rrf` and `dvc`.

One process per command has three advantages. Torch, renderers and their memory stay out of the
flow. A cancelled flow can end training with SIGTERM, which saves a checkpoint. And each step has
its own log file.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flows import progress
from flows.this_run import this_run
from rrf import processes, workspace
from rrf.outcome import Outcome

_NOT_IN_REMOTE = (
    "the DVC remote lacks recordings that datasets.dvc names; send them from where they are:"
    " `rrf data share datasets.dvc`; if another remote has them: `dvc pull -r NAME datasets.dvc`;"
    " or record them again, then `dvc commit -f datasets.dvc`"
)
_NOT_IN_DEMO_REMOTE = (
    "the DVC remote lacks recordings that datasets.dvc names; restore the remote:"
    " `git checkout infra/dvc-demo`; if another remote is the default, take them from this one:"
    " `dvc pull -r demo datasets.dvc`; or record them again: `rrf data collect`,"
    " then `dvc commit -f datasets.dvc`"
)
_UNSAVED = "unsaved files"  # DVC has no class of its own for this error
_HINTS = {
    _UNSAVED: (
        "datasets/raw holds recordings that DVC does not know; to keep them:"
        " `dvc commit -f datasets.dvc`; to discard them: `dvc checkout --force datasets.dvc`"
    ),
    "DownloadError": _NOT_IN_REMOTE,
    "CheckoutError": _NOT_IN_REMOTE,
    "MissingDataSource": "the raw recordings are not here; run `dvc pull datasets.dvc` first",
    "NoCredentialsError": (
        "a bucket of dvc.yaml, or of a DVC remote, asks who you are: `rrf services down`, then"
        " `export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...`, then `rrf services up`"
    ),
}
"""Class of DVC's exceptions -> what to type."""
_LEFT_BY_DVC = re.compile(r".*/\.[\w-]{22}\.tmp")
"""A file that DVC has not finished: it is written under such a name, and renamed."""
GRACE_S = 20.0  # time to save a checkpoint; Prefect kills a cancelled flow after 30 s


def rrf(
    step: str,
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    stop_when: Callable[[], str] | None = None,
) -> dict:
    """Run `rrf WORDS` and return its result, which it writes into a file: its output is for people.

    `env` are environment variables for it, beside those of every command; `stop_when` is that of
    `processes.run`.

    Raises:
        processes.CommandError: If it fails; the message has its last lines and the path of its log.
        processes.StoppedError: If `stop_when` stopped it.
    """
    with tempfile.TemporaryDirectory(prefix="rrf-result-") as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, "-m", "rrf.cli", *map(str, words), "--result-file", str(path)]
        _run(step, command, env or {}, stop_when)
        return Outcome.read(path).result


def module(
    step: str, name: str, *words: str | Path, env: Mapping[str, str] | None = None
) -> list[str]:
    """Run `python -m NAME WORDS` and return the lines of its output. Raises like `rrf`."""
    return _run(step, [sys.executable, "-m", name, *map(str, words)], env or {})


class DvcBusyError(RuntimeError):
    """Another DVC command holds a lock."""


def dvc(step: str, *words: str | Path) -> dict[str, str] | None:
    """Run `dvc WORDS`, or several such commands with `dvc_command.THEN` between them.

    What a killed DVC has left half written is removed: DVC itself takes it for a recording that it
    does not know.

    Returns:
        What `status --cloud` answered, if that is one of the commands.

    Raises:
        ValueError: For a problem that the user can fix; the message names the command for it.
        DvcBusyError: If another DVC command is running.
        processes.CommandError: If it fails for another reason.
    """
    with tempfile.TemporaryDirectory(prefix="rrf-dvc-") as folder:
        path = Path(folder, "answers.json")
        while True:
            try:
                module(step, "flows.dvc_command", path, *words)
            except processes.CommandError as error:
                if _removed_leftovers(error.tail):
                    continue
                classes = json.loads(path.read_text())["errors"] if path.is_file() else []
                if problem := _explained(error, classes):
                    raise problem from error
                raise
            return json.loads(path.read_text())["cloud"]


def _explained(error: processes.CommandError, classes: list[str]) -> Exception | None:
    """An error of DVC, known by its classes, in words that help; None for another one."""
    classes += [_UNSAVED] if any(_UNSAVED in line for line in error.tail) else []
    if "LockError" in classes:
        return DvcBusyError(str(error))
    if hint := next((hint for name, hint in _HINTS.items() if name in classes), None):
        if hint == _NOT_IN_REMOTE and _has_demo_remote():
            hint = _NOT_IN_DEMO_REMOTE
        return ValueError(f"{hint}\n{error}")
    return None


def _removed_leftovers(lines: Sequence[str]) -> bool:
    """Remove the unfinished files that DVC names; whether there were any. It held its lock when it
    found them, so nobody was writing them.
    """
    if not any(_UNSAVED in line for line in lines):
        return False
    found = [Path(line.strip()) for line in lines if _LEFT_BY_DVC.fullmatch(line.strip())]
    found = [path for path in found if path.is_relative_to(workspace.home()) and path.is_file()]
    for path in found:
        path.unlink()
    return bool(found)


def _has_demo_remote() -> bool:
    """Whether this workspace is rrf's own repository, with the demo's remote in it."""
    config = workspace.home() / ".dvc/config"
    return config.is_file() and "infra/dvc-demo" in config.read_text()


def _run(
    step: str,
    command: list[str],
    env: Mapping[str, str],
    stop_when: Callable[[], str] | None = None,
) -> list[str]:
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
        env={**_environment(), **env},
        grace_s=GRACE_S,
        stop_when=stop_when,
    )
    return lines


def _environment() -> dict[str, str]:
    """Environment variables for a command.

    They select the code of this workspace, these flows wherever they lie, and the `rrf` of this
    Python environment, which dvc.yaml calls by its bare name, and they name the flow run for the
    records of the command.
    """
    flow_run = this_run()
    code = dict.fromkeys([str(workspace.home()), str(Path(__file__).parents[1])])
    return (flow_run.environment() if flow_run else {}) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(code),
        "COLUMNS": "120",
    }
