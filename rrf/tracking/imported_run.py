"""The MLflow run of a policy that others have trained. It stands for the import, so that a version
in the registry has a run to which its files belong.
"""

from pathlib import Path

from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.tracking import store

EXPERIMENT = "imported"
_DIGEST = "rrf.checkpoint_digest"


def imported_run(checkpoint: str | Path) -> str:
    """The id of the run of an imported checkpoint, which is made if there is none yet."""
    client, digest = store.connect(), deployable_digest(checkpoint)
    experiment = store.experiment_id(client, EXPERIMENT)
    found = client.search_runs([experiment], f"tags.`{_DIGEST}` = '{digest}'", max_results=1)
    if found:
        return found[0].info.run_id
    name = f"{Path(checkpoint).resolve().name}, {digest[:8]}"
    run = client.create_run(experiment, tags={_DIGEST: digest}, run_name=name)
    client.set_terminated(run.info.run_id)
    return run.info.run_id
