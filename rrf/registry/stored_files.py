"""Files among the artifacts of runs, copied here."""

from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.mlflow_store import artifacts
from rrf.registry.client import artifact_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient


def download(
    client: "MlflowClient", run_id: str, path: str, scratch: str | Path, what: str = ""
) -> Path:
    """A file or folder of a run, copied into a folder. MLflow's own function reads the whole run
    three times and looks for models in it.

    Args:
        client: A client of the store.
        run_id: The run.
        path: Of the file or folder, among the run's artifacts.
        scratch: Where the copy goes; it need not exist.
        what: What it is, for the message.

    Raises:
        OSError: If it cannot be read.
    """
    from mlflow.exceptions import MlflowException

    Path(scratch).mkdir(parents=True, exist_ok=True)
    uri = workspace.tracking_uri()
    try:
        repository = artifacts.repository(artifact_uri(client, run_id), uri)
        return Path(repository.download_artifacts(path, str(scratch)))
    except (MlflowException, OSError) as error:
        where = f"{path} of run {run_id}"
        named = f"{what} ({where})" if what else where
        raise OSError(f"{named} cannot be read: {error}{artifacts.advice(uri)}") from error
