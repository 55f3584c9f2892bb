"""What is in a remote of DVC after a push that was killed, and after `rrf data share`."""

import os
import signal
import subprocess
import sys

import pytest

from flows.share import share
from tests.repository.structure import ROOT


def dvc(home, *words):
    subprocess.run([sys.executable, "-m", "dvc", *words], cwd=home, check=True, capture_output=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with a folder of four files and an empty remote."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    home = tmp_path / "home"
    (home / "raw").mkdir(parents=True)
    monkeypatch.chdir(home)
    for name in "abcd":
        (home / "raw" / name).write_text(f"content of {name}")
    subprocess.run(["git", "init", "-q", "--template="], cwd=home, check=True)
    dvc(home, "init", "-q")
    dvc(home, "remote", "add", "-d", "here", str(tmp_path / "remote"))
    dvc(home, "add", "-q", "raw")
    return home


def in_remote(home):
    return sorted(path for path in (home.parent / "remote").rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_half_remote_which_dvc_takes_for_whole_is_completed(home):
    assert share(home) == 5  # four files and their list
    whole = in_remote(home)
    assert share(home, ["raw.dvc"], "here") == 0
    for path in [path for path in whole if path.suffix != ".dir"][:2]:
        path.unlink()  # as if a push was killed after the list
    dvc(home, "push", "-q")
    assert len(in_remote(home)) == 3
    assert share(home) == 2
    assert in_remote(home) == whole
    with pytest.raises(ValueError, match="DVC: "):
        share(home, ["nothing.dvc"])
    with pytest.raises(ValueError, match=r"DVC: .*elsewhere"):
        share(home, remote="elsewhere")


@pytest.mark.slow
def test_killed_before_any_file_it_leaves_no_list_without_its_files(home):
    program = f"""
import os, signal, sys
from pathlib import Path
from dvc_objects.fs.local import LocalFileSystem
from flows.share import share
from tests.repository.structure import ROOT
left, put = [int(sys.argv[1])], LocalFileSystem.put_file
def counted(self, source, target, *words, **named):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(self, source, target, *words, **named)
LocalFileSystem.put_file = counted
share(Path({str(home)!r}))
"""
    for number in range(3):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program, str(number)]
        done = subprocess.run(command, env=environment, check=False)
        assert done.returncode in (0, -signal.SIGKILL)
        kinds = {path.suffix for path in in_remote(home) if ".tmp" not in path.name}
        assert ".dir" not in kinds or len(in_remote(home)) >= 5
    share(home)
    assert len([path for path in in_remote(home) if path.suffix != ".tmp"]) == 5


@pytest.mark.slow
def test_it_is_a_command_of_rrf_and_names_what_is_wrong(home, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(ROOT))
    command = [sys.executable, "-m", "rrf", "data", "share"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = {"capture_output": True, "text": True, "env": environment}
    none = subprocess.run([*command, "nothing.dvc"], cwd=home, check=False, **words)
    assert (none.returncode, none.stderr.count("\n")) == (2, 1)
    assert "nothing.dvc' does not exist" in none.stderr
