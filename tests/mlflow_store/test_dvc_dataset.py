"""What MLflow recorded of a dataset leads back to exactly those files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rrf.mlflow_store.dvc_dataset import directory_md5, load
from rrf.registry.lineage_sources import collect_lineage
from rrf.tracking.mlflow_run import MLflowTracker
from tests.registry.conftest import write_json

GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")
LOAD = """
import sys, mlflow
run = mlflow.get_run(sys.argv[1])
print(mlflow.data.get_source(run.inputs.dataset_inputs[0].dataset).load())
"""


def git(folder, *words):
    return subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True, check=True)


@pytest.fixture
def tracked(home, monkeypatch):
    """`home` with datasets/demo in DVC's cache and in a remote, committed."""
    from dvc.repo import Repo

    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    (home / "dvc.lock").unlink()
    (home / "datasets.dvc").unlink()
    (home / ".dvc").mkdir()
    (home / ".dvc/config").write_text(
        f'[core]\n    remote = lab\n[remote "lab"]\n    url = {home.parent / "lab-store"}\n'
    )
    (home / ".dvc/.gitignore").write_text("/tmp\n/cache\n")
    (home / "configs/datasets").mkdir(parents=True)
    (home / "configs/datasets/demo.yaml").write_text("source: {path: made}\n")
    (home / "made").write_text("raw\n")
    (home / "dvc.yaml").write_text(  # the fixture `home` has made the files already
        "stages: {publish: {cmd: 'true', deps: [made], outs: [datasets/demo: {persist: true}]}}"
    )
    (home / "pyproject.toml").touch()
    monkeypatch.chdir(home)
    with Repo(str(home)) as repository:
        repository.reproduce()
        repository.push()
    git(home, "add", ".")
    git(home, "commit", "-qm", "tracked")
    return home


def test_the_md5_of_a_directory_is_that_of_dvc(tracked):
    lineage = collect_lineage("demo")
    assert lineage.missing == ()
    assert directory_md5(tracked / "datasets/demo") == lineage.datasets[0].md5
    assert directory_md5(tracked / "datasets/absent") is None


@pytest.mark.slow
def test_a_run_leads_to_its_dataset_in_another_process_and_in_another_clone(tracked, tmp_path):
    run_dir = tracked / ".rrf/runs/one"
    run_dir.mkdir(parents=True)
    tracker = MLflowTracker("train", "one", run_dir, None)
    tracker.log_dataset(collect_lineage("demo"))
    tracker.close("FINISHED")
    clone = tmp_path.parent / f"{tmp_path.name}-clone"
    git(tmp_path.parent, "clone", "-q", str(tracked), str(clone))
    environment = os.environ | {
        "RRF_HOME": str(clone),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tracked / '.rrf/mlflow.db'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOAD, tracker.run_id],
        env=environment,
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.splitlines()[-1])
    assert clone in found.parents
    assert (found / "README.md").read_text() == "# demo\n"
    assert directory_md5(found) == directory_md5(tracked / "datasets/demo")
    shutil.rmtree(clone)


@pytest.mark.slow
def test_the_files_here_are_used_if_they_are_that_version_and_else_fetched(tracked, tmp_path):
    lineage = collect_lineage("demo")
    facts = {
        "path": "datasets/demo",
        "revision": lineage.git_revision,
        "md5": lineage.datasets[0].md5,
    }
    assert load(facts) == tracked / "datasets/demo"
    copied = load(facts, tmp_path / "copied")
    assert (copied / "README.md").read_text() == "# demo\n"
    with pytest.raises(ValueError, match="copied exists; give a folder that does not"):
        load(facts, tmp_path / "copied")
    write_json(tracked / "datasets/demo/meta/info.json", {"total_episodes": 8})
    brought = load(facts)
    assert brought == tracked / ".rrf/datasets" / facts["md5"]
    assert directory_md5(brought) == facts["md5"]
    (brought / "README.md").write_text("damaged\n")
    assert directory_md5(load(facts)) == facts["md5"]


def test_a_version_that_cannot_be_had_says_what_to_type(tracked):
    with pytest.raises(ValueError, match="recorded no version of datasets/demo"):
        load({"path": "datasets/demo", "revision": "1" * 40, "md5": None})
    unknown = {"path": "datasets/demo", "revision": "1" * 40, "md5": "7" * 32 + ".dir"}
    with pytest.raises(ValueError, match="Run `git fetch` if this clone lacks the revision"):
        load(unknown)
    known = unknown | {"revision": git(tracked, "rev-parse", "HEAD").stdout.strip()}
    with pytest.raises(ValueError, match="is another version than the run used, 7777"):
        load(known)
    assert not list((tracked / ".rrf/datasets").iterdir())


def test_mlflow_knows_the_source_without_being_told():
    from importlib.metadata import entry_points

    (entry,) = [one for one in entry_points(group="mlflow.dataset_source") if one.name == "dvc"]
    assert entry.load()._get_source_type() == "dvc"
