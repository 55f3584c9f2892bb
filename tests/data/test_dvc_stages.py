"""The pipeline file and the code agree; `dvc pull && dvc repro` work on a fresh clone."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rrf.data.sources import SOURCES
from tests.data.conftest import make_cfg, write_raw

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
RECORDINGS = yaml.safe_load((ROOT / "infra/recordings/dvc.yaml").read_text())
PIPELINES = pytest.mark.parametrize("pipeline", [PIPELINE, RECORDINGS], ids=["root", "recordings"])
STAGES = {"convert": "conversion.convert", "validate": "validation.validate", "publish": "publish"}


def datasets(pipeline):
    return pipeline["vars"][0]["datasets"]


def stage(pipeline, name):
    return pipeline["stages"][name]["do"]


def listed_code(pipeline, name):
    deps = set(stage(pipeline, name)["deps"])
    if name == "convert":
        deps |= {dataset["with"] for dataset in datasets(pipeline).values()}
    return {dep for dep in deps if dep.endswith(".py")}


def modules_behind(name):
    """The files of rrf/data that importing a module loads."""
    seen, waiting = set(), [f"{name.replace('.', '/')}.py"]
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rrf.data"):
                waiting += [f"{node.module.replace('.', '/')}.py"]
                waiting += [
                    f"{node.module.replace('.', '/')}/{alias.name}.py" for alias in node.names
                ]
    return seen


def code_of(pipeline, name):
    """The same, and for a conversion of merging and of the datasets' readers."""
    files = modules_behind(f"rrf.data.{STAGES[name]}")
    if name == "convert":
        files |= modules_behind("rrf.data.conversion.merge")
        for dataset in datasets(pipeline):
            cfg = yaml.safe_load((ROOT / f"configs/datasets/{dataset}.yaml").read_text())
            if "source" in cfg:
                files |= modules_behind(reader(cfg).removesuffix(".py").replace("/", "."))
    return files


def reader(cfg):
    """The file that reads a dataset's format."""
    return f"{SOURCES.get(cfg['source']['format']).__module__.replace('.', '/')}.py"


@PIPELINES
def test_conversion_runs_again_when_any_code_it_uses_changes(pipeline):
    assert listed_code(pipeline, "convert") == code_of(pipeline, "convert")


@PIPELINES
@pytest.mark.parametrize("name", STAGES)
def test_every_listed_code_file_is_used_by_its_stage(pipeline, name):
    listed = listed_code(pipeline, name)
    assert listed <= code_of(pipeline, name)
    assert f"rrf/data/{STAGES[name].replace('.', '/')}.py" in listed


def test_both_pipelines_have_the_same_stages():
    for name in STAGES:
        root, recordings = dict(stage(PIPELINE, name)), dict(stage(RECORDINGS, name))
        assert recordings.pop("wdir") == "../.."
        if name == "convert":  # the code of their formats differs
            for one in (root, recordings):
                one["deps"] = [dep for dep in one["deps"] if not dep.endswith(".py")]
        assert recordings == root


@PIPELINES
def test_a_dataset_stands_until_the_new_one_is_complete(pipeline):
    """DVC removes what a stage makes before it runs it, unless it is persistent."""
    for name in ("convert", "publish"):
        (out,) = stage(pipeline, name)["outs"]
        assert list(out.values()) == [{"cache": False, "persist": True}]


def test_every_dataset_has_its_config_and_every_config_its_stages():
    listed = datasets(PIPELINE) | datasets(RECORDINGS)
    assert set(listed) == {path.stem for path in (ROOT / "configs/datasets").glob("*.yaml")}
    for name, dataset in listed.items():
        cfg = yaml.safe_load((ROOT / f"configs/datasets/{name}.yaml").read_text())
        if "merge" in cfg:
            parts = [f"datasets/{part['dataset']}" for part in cfg["merge"]]
            assert [dataset["raw"], dataset["with"]] == parts
            continue
        path = cfg["source"]["path"]
        assert dataset["raw"] == ("rrf/data/fetch.py" if path.startswith("hf://") else path)
        assert dataset["with"] == reader(cfg)


def test_raw_recordings_come_from_the_remote_inside_the_repository():
    tracked = yaml.safe_load((ROOT / "datasets.dvc").read_text())["outs"]
    assert [out["path"] for out in tracked] == ["datasets/raw"]
    config = (ROOT / ".dvc/config").read_text()
    assert "remote = demo" in config
    assert "url = ../infra/dvc-demo" in config
    assert "analytics = false" in config


def test_a_change_in_any_part_merges_again(tmp_path, monkeypatch):
    """The stages as they are, with commands that copy instead of converting."""
    from dvc.repo import Repo

    inputs = {name: {"raw": f"raw/{name}", "with": "reader"} for name in "abc"}
    inputs["ab"] = {"raw": "datasets/a", "with": "datasets/b"}
    inputs["abc"] = {"raw": "datasets/ab", "with": "datasets/c"}
    stages = {}
    for name, one in PIPELINE["stages"].items():
        deps = [dep for dep in one["do"]["deps"] if not dep.endswith(".py")]
        outs = [path for out in one["do"]["outs"] for path in out]
        cmd = f"mkdir -p {' '.join(outs)} && cp -r {' '.join(deps)} {outs[0]}"
        stages[name] = one | {"do": one["do"] | {"deps": deps, "cmd": cmd}}
    pipeline = {"stages": stages, "vars": [{"datasets": inputs}]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / "raw").mkdir()
    for path in ("reader", *(f"configs/datasets/{name}.yaml" for name in inputs)):
        (tmp_path / path).touch()
    for name in "abc":
        (tmp_path / f"raw/{name}").write_text(name)
    monkeypatch.chdir(tmp_path)
    repository = Repo.init(str(tmp_path), no_scm=True)

    def converted():
        made = [stage.addressing for stage in repository.reproduce()]
        return {name.removeprefix("convert@") for name in made if name.startswith("convert@")}

    assert converted() == {"a", "b", "c", "ab", "abc"}
    for part, stale in (("b", {"b", "ab", "abc"}), ("c", {"c", "abc"})):
        (tmp_path / f"raw/{part}").write_text("recorded again")
        assert converted() == stale


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
    toy = {"raw": "datasets/raw/toy", "with": "rrf/data/formats/robomimic.py"}
    pipeline = PIPELINE | {"vars": [{"datasets": {"toy": toy}}]}
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
