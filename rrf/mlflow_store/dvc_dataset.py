"""A DVC-versioned dataset as an MLflow dataset, with the MD5 that DVC recorded as its digest.

`search_runs("dataset.digest = '<md5>'")` finds the runs that used this data, and
`mlflow.data.get_source(...).load()` leads back to the files, in any process that runs in a clone of
the repository. MLflow finds the type of the source, "dvc", by an entry point in pyproject.toml.
"""

import functools
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic, workspace
from rrf.lineage import DatasetLineage

CONTEXT = "mlflow.data.context"
_MAX_DIGEST = 36  # MLflow's limit; an MD5 of a directory, "<32 hex>.dir", just fits


def dataset_input(dataset: DatasetLineage, revision: str | None, context: str = "training"):
    """The `mlflow.entities.DatasetInput` for one dataset of a lineage.

    A dataset that DVC does not track gets the digest "untracked".
    """
    from mlflow.entities import DatasetInput, InputTag

    source = source_class()(
        {
            "path": dataset.path,
            "revision": revision,
            "md5": dataset.md5,
        }
    )
    size = {"num_episodes": dataset.num_episodes, "num_frames": dataset.num_frames}
    digest = (dataset.md5 or "untracked")[:_MAX_DIGEST]
    entity = _dataset_class()(source, dataset.name, digest, size)._to_mlflow_entity()
    return DatasetInput(entity, [InputTag(CONTEXT, context)])


def load(facts: Mapping, dst_path: str | Path | None = None) -> Path:
    """A local folder with exactly the dataset that a run used.

    It is the dataset of this clone if that is the same version. Otherwise `dvc get` brings the
    version from the cache of this clone or its remote.

    Args:
        facts: path, revision and md5, as `dataset_input` recorded them.
        dst_path: A new folder to copy to. Without it nothing is copied that is here already, and
            what is brought lies in .rrf/datasets/MD5.

    Raises:
        ValueError: If the run recorded no version, or that version is not to be had from here; the
            message says what to type.
    """
    path, revision, md5 = facts["path"], facts.get("revision"), facts.get("md5")
    if not md5 or not revision:
        raise ValueError(f"the run recorded no version of {path}, so there is none to load")
    home = workspace.home()
    brought = workspace.state() / "datasets" / md5
    here = next((root for root in (home / path, brought) if directory_md5(root) == md5), None)
    target = Path(dst_path) if dst_path else here or brought
    if target.exists() and target != here:
        if dst_path:
            raise ValueError(f"{target} exists; give a folder that does not")
        shutil.rmtree(target)  # it is not what its name says
    if target != here:
        with atomic.directory(target.absolute()) as folder:
            if here:
                shutil.copytree(here, folder, dirs_exist_ok=True)
            else:
                _get(home, facts, folder)
    return target


def directory_md5(root: Path) -> str | None:
    """The MD5 that DVC gives a directory, of the sorted names and MD5s of its files; None if there
    is none.
    """
    if not root.is_dir():
        return None
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}
    listed = [{"md5": _md5(file), "relpath": name} for name, file in sorted(files.items())]
    return f"{hashlib.md5(json.dumps(listed).encode()).hexdigest()}.dir"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _get(home: Path, facts: Mapping, folder: Path) -> None:
    """Fill an empty folder with the version of a dataset that git and DVC know."""
    path, revision, got = facts["path"], facts["revision"], folder / ".tmp-got"
    command = [sys.executable, "-m", "dvc", "get", str(home), path, "--rev", revision]
    done = subprocess.run(
        [*command, "--out", str(got), "--quiet"],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reasons = done.stderr.strip().splitlines() or ["no reason given"]
        raise ValueError(
            f"{path} of {revision[:12]} is neither in {home} nor in its DVC remote ({reasons[0]}). "
            "Run `git fetch` if this clone lacks the revision, or set the remote that has the "
            "dataset as the default: dvc remote default NAME. To make it again: "
            f"git worktree add ../{revision[:12]} {revision[:12]}, in it: dvc repro --pull"
        )
    if directory_md5(got) != facts["md5"]:
        raise ValueError(
            f"{path} in {revision[:12]} is another version than the run used, {facts['md5']}: "
            "dvc.lock was not committed then"
        )
    for entry in got.iterdir():
        entry.rename(folder / entry.name)
    got.rmdir()


@functools.cache
def source_class():
    """`DVCSource`. It is defined on first use, because its base class comes from MLflow."""
    from mlflow.data.dataset_source import DatasetSource

    class DVCSource(DatasetSource):
        def __init__(self, facts: dict):
            self.facts = facts

        @staticmethod
        def _get_source_type() -> str:
            return "dvc"

        def load(self, dst_path=None) -> str:
            return str(load(self.facts, dst_path))

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

    DVCSource.load.__doc__ = load.__doc__
    return DVCSource


@functools.cache
def _dataset_class():
    from mlflow.data.dataset import Dataset

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

    return DVCDataset


def __getattr__(name: str):
    """`DVCSource`, which MLflow's entry point names."""
    if name == "DVCSource":
        return source_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
