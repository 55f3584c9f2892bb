"""Lineage from DVC's files, git and the validation report; what is missing is named."""

import subprocess

import pytest

from rrf.tracking.lineage import collect_lineage, source_digest
from tests.tracking.conftest import write_json


def test_lineage_of_a_complete_repository(home):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, text=True
    ).stdout
    lineage = collect_lineage("demo")
    digest = lineage.pop("source_digest")
    assert digest == source_digest()
    assert len(digest) == 64
    assert lineage == {
        "dataset": "demo",
        "dataset_md5": "0123456789abcdef0123456789abcdef.dir",
        "raw_md5": "fedcba9876543210fedcba9876543210.dir",
        "git_revision": head.strip(),
        "git_dirty": False,
        # sha256sum of "numpy==1\n" and of {"passed": true}
        "lock_hash": "b8a122d596af27fd3b6e2386e5c39db9e980b18a74e1e70faf4a8e1eb5817674",
        "validation": "passed",
        "validation_digest": "748eda8085f7e3c82149775d9542083427f0f8a955173c4a0ed18c85c69c5c09",
        "num_episodes": 7,
        "num_frames": 91,
        "missing": [],
    }


def test_uncommitted_changes_and_a_failed_validation_show(home):
    (home / "new.py").write_text("x = 1\n")
    write_json(home / "datasets/reports/demo/validation.json", {"passed": False})
    lineage = collect_lineage("demo")
    assert (lineage["git_dirty"], lineage["validation"]) == (True, "failed")


def test_everything_missing_is_named_with_the_command_that_makes_it(
    home, tmp_path_factory, monkeypatch
):
    bare = tmp_path_factory.mktemp("bare")
    monkeypatch.setenv("RRF_HOME", str(bare))
    lineage = collect_lineage("demo")
    names = [problem.split(":")[0] for problem in lineage["missing"]]
    assert names == [
        "dataset_md5",
        "raw_md5",
        "git_revision",
        "lock_hash",
        "validation",
        "num_episodes, num_frames",
    ]
    assert "run `dvc repro`" in lineage["missing"][0]
    assert [lineage[k] for k in ("dataset_md5", "git_revision", "git_dirty", "validation")] == [
        None
    ] * 4


def test_a_damaged_lock_file_is_an_error_with_its_name(home):
    (home / "dvc.lock").write_text("stages: [")
    with pytest.raises(ValueError, match=r"dvc\.lock is not YAML"):
        collect_lineage("demo")
