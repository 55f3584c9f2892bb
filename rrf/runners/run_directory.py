"""What `rrf train` writes into the directory of a run beside its checkpoints.

RUN_DIR/
    run.json        the MLflow run, digests of everything that decides the result, the config
    result.json     how it ended: the checkpoint, the steps, the time; only of a finished run
    global_step_N/  see `rrf.runners.checkpoints.checkpoint`
"""

import json
import shlex
from pathlib import Path

RUN, RESULT = "run.json", "result.json"


def read_facts(path: Path) -> dict:
    """What a file of the run directory holds; nothing if it is not there.

    Raises:
        ValueError: For a damaged file.
    """
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(data, dict):
        raise damaged(path, f"it holds {type(data).__name__}, not a mapping")
    return data


def damaged(path: Path, why: str) -> ValueError:
    """The error for a file that cannot be used; it says how to go on without it."""
    return ValueError(
        f"{path} is damaged ({why}). The checkpoints beside it do not need it: rm "
        f"{shlex.quote(str(path))}, then the same command again goes on from the newest"
    )


def mlflow_run_of(checkpoint: str | Path) -> str | None:
    """The id of the MLflow run in whose run directory a checkpoint lies, if it lies in one.

    Raises:
        ValueError: If the file that names it is damaged.
    """
    for folder in Path(checkpoint).resolve().parents:
        if run_id := read_facts(folder / RUN).get("run_id"):
            return run_id
    return None
