"""The files that `rrf train` writes into the directory of a run besides its checkpoints.

RUN_DIR/
    run.json        the MLflow run, digests of everything that determines the result, the config
    result.json     the result of a finished run: its checkpoint, steps and time
                    (both with `format_version`)
    env_error.txt   the traceback of an environment that failed, see `rrf.runners.env_failure`
    global_step_N/  see `rrf.runners.checkpoints.checkpoint`
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic, formats

RUN, RESULT, ENV_ERROR = "run.json", "result.json", "env_error.txt"


def write_facts(path: Path, facts: Mapping) -> None:
    """Write `run.json` or `result.json` atomically."""
    atomic.write_json(path, {**formats.RUN.mark, **facts})


def read_facts(path: Path) -> dict:
    """The content of `run.json` or `result.json`; empty if the file does not exist.

    Raises:
        ValueError: For a damaged file, or one that a newer rrf wrote.
    """
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(data, dict):
        raise damaged(path, f"it holds a {type(data).__name__}, not a mapping")
    return formats.RUN.read(data, path)


def damaged(path: Path, why: str) -> ValueError:
    """The error for a damaged file. Its message tells how to continue without the file."""
    return ValueError(
        f"{path} is damaged ({why}). The checkpoints beside it do not need it. Delete it: rm "
        f"{shlex.quote(str(path))}. Then run the same command again to resume from the newest "
        "checkpoint"
    )


def note_run(run_dir: Path, run_id: str) -> None:
    """Write the id of the MLflow run into run.json, if `rrf train` has made one there."""
    path = run_dir / RUN
    if path.is_file():
        write_facts(path, read_facts(path) | {"run_id": run_id})


def mlflow_run_of(checkpoint: str | Path) -> str | None:
    """The id of the MLflow run of a checkpoint; None if it is not in a run directory.

    Raises:
        ValueError: If the file that names the run is damaged.
    """
    for folder in Path(checkpoint).resolve().parents:
        if run_id := read_facts(folder / RUN).get("run_id"):
            return run_id
    return None
