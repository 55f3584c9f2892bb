"""Open the trackers that record a run of `rrf train`, with a name and notes that describe it."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.cli.options import is_first_process
from rrf.lineage import Lineage

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.tracker import Tracker


def open_run(
    cfg: "RunnerCfg", run_dir: Path, lineage: Lineage, inputs: Mapping, run_id: str | None
) -> "Tracker":
    """Open the trackers of a run. With torchrun, only the first process has trackers.

    Args:
        lineage: The lineage of the run.
        inputs: Digests of everything that decides its result.
        run_id: The MLflow run to continue, if the run was recorded before.
    """
    from rrf import atomic
    from rrf.mlflow_store.flow_run import FlowRun, flow_run_tags
    from rrf.registry.training_facts import run_name, run_notes
    from rrf.runners.tracker import NullTracker
    from rrf.tracking.runs import open_trackers

    if not is_first_process():
        return NullTracker()
    key, config = atomic.digest_of(inputs), cfg.to_dict()
    notes = run_notes(config, lineage, run_dir, as_typed(), FlowRun.from_environment())
    name = run_name(config, key)
    tracker = open_trackers(cfg.trackers, cfg.experiment_name, name, run_dir, run_id, notes)
    tracker.set_tags({"run_key": key} | flow_run_tags())
    return tracker


def as_typed() -> str | None:
    """The `rrf` command line of this process; None if this process is another program."""
    program = Path(sys.argv[0])
    is_module = program.name == "__main__.py" and "rrf" in program.parts[-3:-1]
    if program.name == "rrf" or is_module:
        return shlex.join(["rrf", *sys.argv[1:]])
    return None
