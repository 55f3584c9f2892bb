"""What the wheel holds, and what it does outside of any workspace."""

import configparser
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from rrf import code_digest
from tests.installed.conftest import ROOT


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}


def test_the_wheel_brings_one_name_and_all_that_is_no_python(wheel):
    files = contents(wheel)
    names = {name.partition("/")[0] for name in files}
    (about,) = names - {"rrf"}
    assert about.endswith(".dist-info")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "rrf", "configs", "flows"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    there = [name for name in listed if (ROOT / name).is_file()]
    placed = [name if name.startswith("rrf/") else f"rrf/_workspace/{name}" for name in there]
    assert [name for name in placed if name not in files] == []
    assert "rrf/py.typed" in files
    assert f"{about}/licenses/LICENSE" in files
    points = configparser.ConfigParser()
    points.read_string(files[f"{about}/entry_points.txt"].decode())
    assert points["prefect.plugins"]["rrf"] == "rrf.prefect_plugin"
    metadata = Parser().parsestr(files[f"{about}/METADATA"].decode())
    assert metadata["Requires-Python"] == "<3.14,>=3.12"


@pytest.mark.slow
def test_the_source_distribution_gives_the_same_wheel(wheel, wheel_of_sdist):
    ours, theirs = contents(wheel), contents(wheel_of_sdist)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_a_build_leaves_only_what_git_ignores(source, wheel, wheel_of_sdist):
    subprocess.run(["git", "init", "--quiet"], cwd=source, check=True)
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    said = subprocess.run(status, cwd=source, capture_output=True, text=True, check=True).stdout
    new = [name for line in said.splitlines() if not (ROOT / (name := line[3:])).exists()]
    assert new == []


def test_the_code_has_the_same_digest_where_the_wheel_is_installed(installed, tmp_path):
    script = "python -c 'from rrf.code_digest import source_digest; print(source_digest())'"
    assert installed.run(script, tmp_path).strip() == code_digest.source_digest()


@pytest.mark.slow
def test_outside_of_a_workspace_training_and_evaluation_work(installed, tmp_path):
    trained = installed.run("rrf train pendulum-ppo max_iterations=1 trackers=[]", tmp_path)
    run = trained.splitlines()[-1].removeprefix("checkpoint ")
    home = Path(installed.environment["HOME"])
    assert Path(run).is_relative_to(home / ".local/share/rrf")
    said = installed.run(
        f"rrf eval {run} --gate configs/gates/pendulum.yaml --num-videos 0", tmp_path
    )
    assert "gate pendulum: fail" in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_installed_with_the_wheel(installed, wheel, tmp_path):
    script = 'python -c \'from rrf.lookup import require; require("no_such", extra="onnx")\''
    said = installed.run(script, tmp_path, code=1)
    assert f"it comes with: pip install 'rrf[onnx] @ {wheel.as_uri()}'" in said


@pytest.mark.skipif(sys.platform != "linux", reason="the services need Linux")
def test_services_belong_to_a_workspace(installed, tmp_path):
    said = installed.run("rrf services status", tmp_path, code=2)
    assert "type it in a workspace (a new one: rrf init FOLDER)" in said
