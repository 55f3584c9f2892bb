"""The end of a training whose environment failed: a line for the user, the traceback in a file."""

import shlex
import traceback
from pathlib import Path

from rrf import atomic
from rrf.run_directory import ENV_ERROR
from rrf.runners.checkpoints import checkpoint


def env_failure(error: Exception, run_dir: Path, when: str, process: str = "") -> ValueError:
    """The error that ends a training; raise it from `error`.

    It writes the traceback of `error` into the run directory. The run and its checkpoints stay as
    they are.

    Args:
        when: When it happened, e.g. "in iteration 3 of 100".
        process: The name of this process among those of a distributed training, for the file.
    """
    path = run_dir / f"{Path(ENV_ERROR).stem}{process}{Path(ENV_ERROR).suffix}"
    atomic.write_text(path, "".join(traceback.format_exception(error)))
    last = checkpoint.latest(run_dir)
    if last is None:
        advice = "no checkpoint was saved yet, so the same command begins anew"
    else:
        advice = (
            f"the last checkpoint is {last}. If the failure does not repeat itself, the same "
            "command continues from there; after a change of the environment's code, start a new "
            f"run from its weights: rrf train ... init_from={shlex.quote(str(last))}"
        )
    return ValueError(f"{error}, {when}. The traceback is in {path}; {advice}")
