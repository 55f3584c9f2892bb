"""A workspace with a registry, as the tests of the registry make it."""

import collections
import shutil
import subprocess
from pathlib import Path

import pytest

from rrf import atomic
from rrf.mlflow_store import store
from rrf.registry import promotion
from tests.data.s3_server import s3  # noqa: F401
from tests.registry.conftest import (
    NAME,
    add,  # noqa: F401
    client,  # noqa: F401
    copy_of,
    empty_store,  # noqa: F401
    home,  # noqa: F401
    new_run,
    register,
    run_id,  # noqa: F401
)


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory, empty_store) -> Path:  # noqa: F811
    """A repository with two versions, made once."""
    with pytest.MonkeyPatch.context() as patch:
        root = copy_of(empty_store.parents[1], tmp_path_factory.mktemp("two"), patch)
        run = new_run(store.connect())
        for seed in (1, 2):
            register(root, NAME, run, seed, solved=18)
    return root


@pytest.fixture
def champion(home, two_versions, monkeypatch) -> str:  # noqa: F811
    """The version that is the champion; there is a second version, and a run that is trained."""
    from mlflow.tracking._tracking_service import utils

    # MLflow remembers for each run where its artifacts are, and the copies have the same run.
    monkeypatch.setattr(utils, "_artifact_repos_cache", collections.OrderedDict())
    shutil.copytree(two_versions, home, dirs_exist_ok=True)
    promotion.promote(NAME, "1")
    checkpoint = home / ".rrf/runs/cup/global_step_4"
    atomic.write_text(checkpoint / "model.safetensors", "weights")
    atomic.write_manifest(checkpoint, kind="vla")
    atomic.write_text(home / ".rrf/login", "rrf:secret\n")
    atomic.write_text(home / ".rrf/pids/mlflow.json", "{}")
    return "1"


@pytest.fixture
def file(tmp_path_factory) -> Path:
    """Where a backup goes; nothing is there yet."""
    return tmp_path_factory.mktemp("backups") / "one.tar"


def elsewhere(home: Path, monkeypatch) -> Path:  # noqa: F811
    """A clone of the workspace on another machine: what is in git, and no state."""
    other = home.parent / f"{home.name}-elsewhere"
    subprocess.run(["git", "clone", "-q", home, other], check=True)
    monkeypatch.setenv("RRF_HOME", str(other))
    return other
