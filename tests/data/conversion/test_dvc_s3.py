"""Buckets with DVC: as the place of recordings, which is watched, and as a remote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rrf.data.conversion.dataset_cfg import SourceCfg
from tests.data.conftest import make_cfg, write_raw
from tests.data.s3_server import s3  # noqa: F401

ROOT = Path(__file__).parents[3]
URL = "s3://robots/toy"
VERSION = "rrf/data/conversion/VERSION"


def runner(folder):
    """A function that runs a command in `folder` and gives what it printed."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        "PYTHONPATH": str(ROOT),
        "RRF_HOME": "",
    }

    def run(*command):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_dvc_converts_again_when_the_bucket_has_changed(s3, tmp_path):  # noqa: F811
    pytest.importorskip("dvc_s3", reason="needs: uv pip install -e '.[s3]'")
    folder = tmp_path / "repository"
    (folder / "configs/datasets").mkdir(parents=True)
    for name in ("rrf", ".dvc", "dvc.yaml", "pyproject.toml"):
        ignore = shutil.ignore_patterns("cache", "tmp", "__pycache__")
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": ignore} if copy is shutil.copytree else {}))
    pipeline = yaml.safe_load((folder / "dvc.yaml").read_text())
    pipeline["vars"] = [{"datasets": {"toy": {"raw": URL, "with": VERSION}}}]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (folder / "configs/datasets/toy.yaml").write_text(
        make_cfg(source=SourceCfg(path=URL)).to_yaml()
    )
    (folder / ".gitignore").write_text("/datasets/\n/.rrf/\n__pycache__\n")
    run = runner(folder)
    run("git", "init", "-q")
    write_raw(tmp_path / "raw", {"pull": [8, 6]})
    s3.put_tree(tmp_path / "raw", URL)
    run("dvc", "repro", "convert@toy")
    lock = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]["convert@toy"]
    assert URL in [dep["path"] for dep in lock["deps"]]
    assert not any("datasets" in dep["path"] for dep in lock["deps"] if dep["path"][0] == "d")
    assert "up to date" in run("dvc", "repro", "convert@toy")
    write_raw(tmp_path / "raw", {"push": [5]})
    s3.put_tree(tmp_path / "raw", URL)
    assert "convert@toy" in run("dvc", "status", "convert@toy")
    run("dvc", "repro", "convert@toy")
    info = (folder / "datasets/converted/toy/meta/info.json").read_text()
    assert '"total_frames": 19' in info


@pytest.mark.slow
def test_recordings_go_to_a_bucket_and_come_back(s3, tmp_path):  # noqa: F811
    """With the commands of docs/data.md."""
    pytest.importorskip("dvc_s3", reason="needs: uv pip install -e '.[s3]'")
    folder, elsewhere = tmp_path / "repository", tmp_path / "elsewhere"
    ignore = shutil.ignore_patterns("cache", "tmp")
    shutil.copytree(ROOT / ".dvc", folder / ".dvc", ignore=ignore)
    shutil.copy(ROOT / ".gitignore", folder)
    write_raw(folder / "recordings/mine", {"pull": [8, 6]})
    s3.put("s3://bucket/made", b"")
    run = runner(folder)
    run("git", "init", "-q")
    run("dvc", "add", "recordings/mine")
    run("dvc", "remote", "add", "team", "s3://bucket/rrf")
    run("dvc", "push", "-r", "team", "recordings/mine.dvc")
    run("git", "add", "recordings", ".dvc", ".gitignore")
    assert "recordings/mine.dvc" in run("git", "diff", "--cached", "--name-only").splitlines()
    author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    run("git", *author, "commit", "-qm", "recordings")
    run("git", "clone", "-q", str(folder), str(elsewhere))
    assert not (elsewhere / "recordings/mine").exists()
    runner(elsewhere)("dvc", "pull", "-r", "team", "recordings/mine.dvc")
    came, went = (one / "recordings/mine/pull.hdf5" for one in (elsewhere, folder))
    assert came.read_bytes() == went.read_bytes()
