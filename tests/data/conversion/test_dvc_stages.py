"""The pipeline file and the code agree; DVC's commands work as its users expect."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.data.conftest import make_cfg, write_raw

ROOT = Path(__file__).parents[3]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
RECORDINGS = yaml.safe_load((ROOT / "infra/recordings/dvc.yaml").read_text().replace("../../", ""))
PIPELINES = pytest.mark.parametrize("pipeline", [PIPELINE, RECORDINGS], ids=["root", "recordings"])
VERSION = "rrf/data/conversion/VERSION"
STAGES = ("convert", "validate", "publish")


def datasets(pipeline):
    return pipeline["vars"][0]["datasets"]


def stage(pipeline, name):
    return pipeline["stages"][name]["do"]


@pytest.mark.parametrize("folder", [ROOT, ROOT / "infra/recordings"], ids=["root", "recordings"])
def test_the_lock_is_of_what_is_committed(folder):
    """Else every fresh clone makes the datasets again, and what is trained there is git-dirty."""
    for name, stage in yaml.safe_load((folder / "dvc.lock").read_text())["stages"].items():
        for dep in stage["deps"]:
            file = folder / dep["path"]
            if file.name == "VERSION":
                md5 = hashlib.md5(file.read_bytes()).hexdigest()
                assert dep["md5"] == md5, f"{name}: {dep['path']} was raised; run: dvc repro"
            assert file.suffix != ".py", f"{name} depends on {dep['path']}"
        for config, params in stage.get("params", {}).items():
            path = folder / config
            current = yaml.safe_load(path.read_text())
            assert params == current, f"{name}: {config} was changed; run: dvc repro"


def outputs(stage):
    """Path -> flags of everything that a stage makes."""
    found = {}
    for out in [one for kind in ("outs", "metrics", "plots") for one in stage.get(kind, [])]:
        found |= out if isinstance(out, dict) else {out: {}}
    return found


def test_both_pipelines_have_the_same_stages():
    for name in STAGES:
        root, recordings = stage(PIPELINE, name), stage(RECORDINGS, name)
        assert recordings["cmd"] == f"cd ../.. && {root['cmd']}"
        assert recordings.get("params") == root.get("params")
        assert set(outputs(recordings)) == set(outputs(root))
        assert recordings["deps"] == root["deps"]


@PIPELINES
def test_a_dataset_stands_until_the_new_one_is_complete(pipeline):
    """DVC removes what a stage makes before it runs it, unless it is persistent."""
    for name in ("convert", "publish"):
        (flags,) = outputs(stage(pipeline, name)).values()
        assert flags["persist"] is True


def test_every_output_can_be_pushed_to_any_remote():
    for name in STAGES:
        for flags in outputs(stage(PIPELINE, name)).values():
            assert "cache" not in flags
            assert "remote" not in flags
    (raw,) = yaml.safe_load((ROOT / "datasets.dvc").read_text())["outs"]
    assert "remote" not in raw


def test_the_repository_has_no_stage_of_recordings_that_are_not_everywhere():
    from dvc.repo import Repo

    with Repo(str(ROOT)) as repository:
        found = {one.addressing for one in repository.index.stages}
    expected = {f"{name}@{dataset}" for name in STAGES for dataset in datasets(PIPELINE)}
    assert found - {"datasets.dvc"} == expected


def test_every_dataset_has_its_config_and_every_config_its_stages():
    listed = datasets(PIPELINE) | datasets(RECORDINGS)
    assert set(listed) == {path.stem for path in (ROOT / "configs/datasets").glob("*.yaml")}
    for name, dataset in listed.items():
        cfg = yaml.safe_load((ROOT / f"configs/datasets/{name}.yaml").read_text())
        if "merge" in cfg:
            parts = [f"datasets/{part['dataset']}" for part in cfg["merge"]]
            assert [dataset["raw"], dataset["with"]] == parts
            continue
        if "edit_of" in cfg:
            assert dataset == {"raw": f"datasets/converted/{cfg['edit_of']}", "with": VERSION}
            continue
        path = cfg["source"]["path"]
        assert dataset["raw"] == (
            "rrf/data/transport/VERSION" if path.startswith("hf://") else path
        )
        assert dataset["with"] == VERSION


def test_raw_recordings_come_from_the_remote_inside_the_repository():
    tracked = yaml.safe_load((ROOT / "datasets.dvc").read_text())["outs"]
    assert [out["path"] for out in tracked] == ["datasets/raw"]
    config = (ROOT / ".dvc/config").read_text()
    assert "remote = demo" in config
    assert "url = ../infra/dvc-demo" in config
    assert "analytics = false" in config


@pytest.mark.slow
def test_a_change_in_any_part_merges_again(tmp_path, monkeypatch):
    """The stages as they are, with commands that copy instead of converting."""
    from dvc.repo import Repo

    inputs = {name: {"raw": f"raw/{name}", "with": "reader"} for name in "abc"}
    inputs["ab"] = {"raw": "datasets/a", "with": "datasets/b"}
    inputs["abc"] = {"raw": "datasets/ab", "with": "datasets/c"}
    stages = {}
    for name, one in PIPELINE["stages"].items():
        deps = [dep for dep in one["do"]["deps"] if not dep.startswith("rrf/")]
        outs = list(outputs(one["do"]))
        cmd = f"mkdir -p {' '.join(outs)} && cp -r {' '.join(deps)} {outs[0]}"
        params = one["do"].get("params", [])
        do = {"cmd": cmd, "deps": deps, "params": params, "outs": outs}
        stages[name] = one | {"do": do}
    pipeline = {"stages": stages, "vars": [{"datasets": inputs}]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / "raw").mkdir()
    for path in ("reader", *(f"configs/datasets/{name}.yaml" for name in inputs)):
        (tmp_path / path).write_text("fps: 10\n")
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


@pytest.fixture
def origin(tmp_path):
    """A repository with the real pipeline, committed, of one small dataset; its raw recordings are
    in the remote inside it.
    """
    origin = tmp_path / "origin"
    origin.mkdir()
    for name in ("rrf", ".dvc", "dvc.yaml", "datasets.dvc", ".dvcignore", "pyproject.toml"):
        source = ROOT / name
        ignore = shutil.ignore_patterns("cache", "tmp", "__pycache__", "config.local")
        if source.is_dir():
            shutil.copytree(source, origin / name, ignore=ignore)
        else:
            shutil.copy(source, origin / name)
    toy = {"raw": "datasets/raw/toy", "with": VERSION}
    pipeline = PIPELINE | {"vars": [{"datasets": {"toy": toy}}]}
    (origin / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (origin / "datasets.dvc").write_text("outs:\n- path: datasets/raw\n  hash: md5\n")
    (origin / "configs/datasets").mkdir(parents=True)
    (origin / "configs/datasets/toy.yaml").write_text(make_cfg().to_yaml())
    shutil.copy(ROOT / ".gitignore", origin)
    write_raw(origin / "datasets/raw/toy", {"pull": [8, 6, 7], "push": [5, 10]})
    run(origin, "git", "init", "-q")
    run(origin, "dvc", "commit", "-f", "datasets.dvc")
    run(origin, "dvc", "push", "datasets.dvc")
    run(origin, "dvc", "repro")
    run(origin, "git", "add", "-A")
    run(origin, *GIT, "commit", "-qm", "all")
    return origin


GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")
CLEAN = "up to date"
STATS = "datasets/toy/norm_stats.json"


def run(folder, *command):
    """What a command printed, run in `folder` with the code of `folder`."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        "PYTHONPATH": str(folder),
        "RRF_HOME": "",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clone(repository, name):
    run(repository.parent, "git", "clone", "-q", str(repository), name)
    return repository.parent / name


@pytest.mark.slow
def test_a_fresh_clone_pulls_and_reproduces_the_same_lock_file(origin):
    fresh = clone(origin, "fresh")
    run(fresh, "dvc", "pull", "datasets.dvc")
    assert "toy" in run(fresh, "dvc", "status")
    run(fresh, "dvc", "repro")
    assert (fresh / STATS).is_file()
    assert run(fresh, "git", "status", "--porcelain") == ""
    assert CLEAN in run(fresh, "dvc", "status")
    assert CLEAN in run(fresh, "dvc", "repro")
    another = clone(origin, "another")
    run(another, "dvc", "repro", "--pull")  # what errors say to type
    assert (another / STATS).read_bytes() == (origin / STATS).read_bytes()
    assert CLEAN in run(another, "dvc", "status")


@pytest.mark.slow
def test_what_was_pushed_to_another_remote_is_pulled_got_and_imported(origin, tmp_path):
    run(origin, "dvc", "remote", "add", "other", str(tmp_path / "store"))
    run(origin, "dvc", "push", "-r", "other")
    run(origin, *GIT, "commit", "-qam", "another remote")
    fresh = clone(origin, "fresh")
    run(fresh, "dvc", "pull", "-r", "other")
    assert (fresh / STATS).read_bytes() == (origin / STATS).read_bytes()
    assert (fresh / "datasets/raw/toy/pull.hdf5").is_file()
    assert CLEAN in run(fresh, "dvc", "status")
    empty = clone(origin, "empty")  # of data; it has the remote alone
    run(empty, "dvc", "remote", "default", "other")
    run(empty, *GIT, "commit", "-qam", "for all")
    run(tmp_path, "dvc", "get", str(empty), "datasets/toy", "--out", "got")
    assert (tmp_path / "got/norm_stats.json").read_bytes() == (origin / STATS).read_bytes()
    run(tmp_path, "dvc", "get", f"file://{empty}", "datasets/toy", "--out", "cloned")
    assert (tmp_path / "cloned/norm_stats.json").read_bytes() == (origin / STATS).read_bytes()
    project = tmp_path / "project"
    project.mkdir()
    run(project, "git", "init", "-q")
    run(project, "dvc", "init", "-q")
    run(project, "dvc", "import", str(empty), "datasets/toy", "--out", "toy")
    assert (project / "toy/norm_stats.json").read_bytes() == (origin / STATS).read_bytes()
    assert CLEAN in run(project, "dvc", "status")


@pytest.mark.slow
def test_versions_are_compared_by_metrics_params_and_plots(origin):
    config = "configs/datasets/toy.yaml"
    run(origin, "dvc", "exp", "run", "-S", f"{config}:checks.limits.max_episode_length=50")
    lines = run(origin, "dvc", "params", "diff").splitlines()
    (changed,) = [line.split() for line in lines if "max_episode_length" in line]
    assert changed[0] == config
    assert changed[-1] == "50"
    experiments = run(origin, "dvc", "exp", "show", "--csv").splitlines()
    assert "facts.episodes" in experiments[0]
    run(origin, *GIT, "commit", "-qam", "experiment")
    (origin / "datasets/raw/toy/push.hdf5").unlink()
    run(origin, "dvc", "commit", "-f", "datasets.dvc")
    run(origin, "dvc", "repro")
    metrics = run(origin, "dvc", "metrics", "diff", "HEAD").splitlines()
    found = {line.split()[1]: line.split()[2:] for line in metrics[1:]}
    assert found["facts.episodes"] == ["5", "3", "-2"]
    assert found["facts.frames"] == ["36", "21", "-15"]
    run(origin, "dvc", "plots", "diff", "HEAD")
    page = (origin / "dvc_plots/index.html").read_text()
    assert '{"frames": 10, "episodes": 1, "rev": "HEAD"' in page
    assert '"dimension": "action.' in page
    assert "dvc_plots" not in run(origin, "git", "status", "--porcelain")


@pytest.mark.slow
def test_an_edit_is_a_version_of_its_own_and_follows_its_origin(origin):
    before = (origin / "datasets/toy/meta/info.json").read_bytes()
    said = run(origin, "rrf", "data", "edit", "clean", "--of", "toy", "--delete", "0,3")
    (line,) = [line for line in said.splitlines() if line.startswith("      clean:")]
    pipeline = yaml.safe_load((origin / "dvc.yaml").read_text())
    datasets(pipeline).update(yaml.safe_load(line))
    (origin / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    run(origin, "dvc", "repro", "publish@clean")
    assert json.loads((origin / "datasets/clean/meta/info.json").read_text())["total_episodes"] == 3
    assert (origin / "datasets/toy/meta/info.json").read_bytes() == before
    assert CLEAN in run(origin, "dvc", "status")
    write_raw(origin / "datasets/raw/toy", {"pull": [8, 6, 7], "push": [5, 12]})
    run(origin, "dvc", "commit", "-f", "datasets.dvc")
    changed = run(origin, "dvc", "status", "convert@clean", "convert@toy")
    assert "convert@toy" in changed
    run(origin, "dvc", "repro", "publish@clean")
    info = json.loads((origin / "datasets/clean/meta/info.json").read_text())
    assert info["total_frames"] == 6 + 7 + 12


def test_the_remote_of_the_repository_has_all_that_its_lock_file_names():
    """So `dvc pull` in a fresh clone brings everything. After a change: dvc repro, dvc push."""
    stages = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"].values()
    outs = [out for stage in stages for out in stage["outs"]]
    outs += yaml.safe_load((ROOT / "datasets.dvc").read_text())["outs"]
    missing = []
    for out in outs:
        wanted = [out["md5"]]
        if _stored(out["md5"]).is_file() and out["md5"].endswith(".dir"):
            wanted += [entry["md5"] for entry in json.loads(_stored(out["md5"]).read_text())]
        missing += [(out["path"], md5) for md5 in wanted if not _stored(md5).is_file()]
    assert missing == []


def _stored(md5: str) -> Path:
    return ROOT / "infra/dvc-demo/files/md5" / md5[:2] / md5[2:]
