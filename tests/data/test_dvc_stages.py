"""The pipeline file and the code agree; `dvc pull && dvc repro` work on a fresh clone."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.data.conftest import make_cfg, write_raw

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
DATASETS = PIPELINE["vars"][0]["datasets"]
ENTRY = {"convert": "convert", "validate": "validate", "publish": "publish"}


def modules_behind(name):
    """The files of rrf/data that importing rrf.data.<name> loads."""
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        path = ROOT / "rrf" / "data" / f"{module}.py"
        if module in seen or not path.is_file():
            continue
        seen.add(module)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "rrf.data":
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rrf.data."):
                waiting.append(node.module.removeprefix("rrf.data."))
    return {f"rrf/data/{module}.py" for module in seen}


def test_conversion_runs_again_when_any_code_it_uses_changes():
    listed = {dep for dep in PIPELINE["stages"]["convert"]["do"]["deps"] if dep.endswith(".py")}
    assert listed == modules_behind("convert")


@pytest.mark.parametrize("stage", ENTRY)
def test_every_listed_code_file_is_used_by_its_stage(stage):
    listed = {dep for dep in PIPELINE["stages"][stage]["do"]["deps"] if dep.endswith(".py")}
    assert listed <= modules_behind(ENTRY[stage])
    assert f"rrf/data/{ENTRY[stage]}.py" in listed


def test_every_dataset_has_its_config_and_every_config_its_stages():
    assert set(DATASETS) == {path.stem for path in (ROOT / "configs/datasets").glob("*.yaml")}
    for name, dataset in DATASETS.items():
        cfg = yaml.safe_load((ROOT / f"configs/datasets/{name}.yaml").read_text())
        assert dataset["raw"] == cfg["source"]["path"]


def test_raw_recordings_come_from_the_remote_inside_the_repository():
    tracked = yaml.safe_load((ROOT / "datasets.dvc").read_text())["outs"]
    assert [out["path"] for out in tracked] == ["datasets/raw"]
    config = (ROOT / ".dvc/config").read_text()
    assert "remote = demo" in config
    assert "url = ../infra/dvc-demo" in config
    assert "analytics = false" in config


@pytest.mark.slow
def test_a_fresh_clone_pulls_and_reproduces_the_same_lock_file(tmp_path):
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    for name in ("rrf", ".dvc", "dvc.yaml", "datasets.dvc", ".dvcignore", "pyproject.toml"):
        source = ROOT / name
        ignore = shutil.ignore_patterns("cache", "tmp", "__pycache__")
        if source.is_dir():
            shutil.copytree(source, origin / name, ignore=ignore)
        else:
            shutil.copy(source, origin / name)
    pipeline = PIPELINE | {"vars": [{"datasets": {"toy": {"raw": "datasets/raw/toy"}}}]}
    (origin / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (origin / "datasets.dvc").write_text("outs:\n- path: datasets/raw\n  hash: md5\n")
    (origin / "configs/datasets").mkdir(parents=True)
    (origin / "configs/datasets/toy.yaml").write_text(make_cfg().to_yaml())
    (origin / ".gitignore").write_text("/datasets/\n__pycache__\n")
    write_raw(origin / "datasets/raw/toy", {"pull": [8, 6, 7], "push": [5, 10]})
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        "PYTHONPATH": str(ROOT),
        "RRF_HOME": "",
    }

    def run(folder, *command):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    git = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")
    run(origin, "git", "init", "-q")
    run(origin, "dvc", "commit", "-f", "datasets.dvc")
    run(origin, "dvc", "push", "datasets.dvc")
    run(origin, "dvc", "repro")
    run(origin, "git", "add", "-A")
    run(origin, *git, "commit", "-qm", "all")
    run(tmp_path, "git", "clone", "-q", str(origin), str(clone))
    run(clone, "dvc", "pull")
    assert not (clone / "datasets/toy").exists()
    run(clone, "dvc", "repro")
    assert (clone / "datasets/toy/norm_stats.json").is_file()
    assert run(clone, "git", "status", "--porcelain") == ""
    assert "up to date" in run(clone, "dvc", "repro")
