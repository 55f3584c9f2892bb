"""A DVC-versioned dataset as an MLflow dataset, with the MD5 that DVC recorded as its digest.

`search_runs("dataset.digest = '<md5>'")` finds the runs that used this data, and
`mlflow.data.get_source` leads back to the files.
"""

import functools
import json
import subprocess
import types
from collections.abc import Mapping

from rrf.tracking.lineage import dvc_path

CONTEXT = "mlflow.data.context"
_MAX_DIGEST = 36  # MLflow's limit; an MD5 of a directory, "<32 hex>.dir", just fits


def dataset_input(lineage: Mapping, context: str = "training"):
    """The `mlflow.entities.DatasetInput` for the lineage of one dataset.

    A dataset that DVC does not track gets the digest "untracked".
    """
    from mlflow.entities import DatasetInput, InputTag

    found = classes()
    source = found.DVCSource(
        {
            "path": dvc_path(lineage["dataset"]),
            "revision": lineage.get("git_revision"),
            "md5": lineage.get("dataset_md5"),
        }
    )
    size = {key: lineage.get(key) for key in ("num_episodes", "num_frames")}
    digest = (lineage.get("dataset_md5") or "untracked")[:_MAX_DIGEST]
    dataset = found.DVCDataset(source, lineage["dataset"], digest, size)
    return DatasetInput(dataset._to_mlflow_entity(), [InputTag(CONTEXT, context)])


@functools.cache
def classes() -> types.SimpleNamespace:
    """Define `DVCSource` and `DVCDataset` and register the source with MLflow.

    This happens on first use, because their base classes come from MLflow.
    """
    from mlflow.data.dataset import Dataset
    from mlflow.data.dataset_source import DatasetSource
    from mlflow.data.dataset_source_registry import register_dataset_source

    class DVCSource(DatasetSource):
        def __init__(self, facts: dict):
            self.facts = facts

        @staticmethod
        def _get_source_type() -> str:
            return "dvc"

        def load(self, dst_path=None) -> str:
            """Copy the files of this revision to `dst_path` with `dvc get`.

            This process must run in the repository.
            """
            target = dst_path or self.facts["path"]
            command = ["dvc", "get", ".", self.facts["path"], "--out", target]
            revision = ["--rev", self.facts["revision"]] if self.facts["revision"] else []
            subprocess.run(command + revision, check=True)
            return target

        @staticmethod
        def _can_resolve(raw_source) -> bool:
            return False

        @classmethod
        def _resolve(cls, raw_source):
            raise NotImplementedError("a DVC source is made from a lineage, not from a path")

        def to_dict(self) -> dict:
            return self.facts

        @classmethod
        def from_dict(cls, source_dict: dict):
            return cls(source_dict)

    class DVCDataset(Dataset):
        def __init__(self, source, name: str, digest: str, size: dict):
            self._size = size
            super().__init__(source=source, name=name, digest=digest)

        def _compute_digest(self) -> str:
            return "untracked"

        def to_dict(self) -> dict:
            return super().to_dict() | {"profile": json.dumps(self._size), "schema": None}

        @property
        def profile(self) -> dict:
            return self._size

        @property
        def schema(self) -> None:
            return None

    register_dataset_source(DVCSource)  # type: ignore[arg-type]
    return types.SimpleNamespace(DVCSource=DVCSource, DVCDataset=DVCDataset)
