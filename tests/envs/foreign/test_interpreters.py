"""Interpreters are made from locks, whole or not at all, and what is missing is said."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import typer.testing

from rrf.cli import app
from rrf.envs.foreign import interpreters

LOCK = "# requires-python: >=3.8\n# imports: tiny_wheel\ntiny-wheel==1.0\n"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A workspace with the lock `tiny` of one package, which lies in a folder of wheels."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny_wheel-1.0-py3-none-any.whl", "w") as wheel:
        about = "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n"
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("tiny_wheel.py", "answer = 42\n")
        wheel.writestr("tiny_wheel-1.0.dist-info/METADATA", about)
        wheel.writestr("tiny_wheel-1.0.dist-info/WHEEL", tag)
        wheel.writestr("tiny_wheel-1.0.dist-info/LICENSE", "\nMIT License\n\nFor tests.\n")
        wheel.writestr("tiny_wheel-1.0.dist-info/RECORD", "tiny_wheel-1.0.dist-info/LICENSE,,\n")
    for variable in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.setenv(variable, str(wheels))
    for variable in ("UV_NO_INDEX", "UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    (tmp_path / "configs/envs").mkdir(parents=True)
    (tmp_path / "configs/envs/tiny.lock").write_text(LOCK)
    return tmp_path


def rrf(*words) -> str:
    """What a command prints."""
    result = typer.testing.CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_lock_becomes_an_interpreter_once(home):
    assert "tiny is set up: Python" in rrf("envs", "setup", "tiny")
    found = interpreters.interpreter("tiny")
    assert found.python == home / ".rrf/envs/tiny/bin/python"
    assert {"name": "tiny-wheel", "version": "1.0", "licence": "MIT License"} in found.record[
        "packages"
    ]
    made = found.python.lstat().st_mtime_ns
    assert "tiny is there already" in rrf("envs", "setup", "tiny")
    assert found.python.lstat().st_mtime_ns == made
    rrf("envs", "setup", "tiny", "--force")
    assert found.python.lstat().st_mtime_ns > made
    assert "tiny-wheel 1.0" in rrf("envs", "list", "--packages")
    assert [path.name for path in interpreters.folder().iterdir()] == ["tiny"]
    (home / "configs/envs/tiny.lock").write_text(f"# another comment\n{LOCK}")
    with pytest.raises(ValueError, match=r"tiny\.lock has changed since.*rrf envs setup tiny$"):
        interpreters.interpreter("tiny")


def test_several_are_set_up_and_one_that_fails_keeps_no_other_from_it(home, monkeypatch):
    lock = home / "configs/envs/tiny.lock"
    lock.write_text(f"# size: 1.5 GB\n{LOCK}")
    lock.with_name("absent.lock").write_text(LOCK.replace("1.0", "2.0"))
    monkeypatch.setattr(interpreters, "locks", lambda: {
        name: lock.with_name(f"{name}.lock") for name in ("absent", "tiny")
    })  # fmt: skip
    result = typer.testing.CliRunner().invoke(app, ["envs", "setup", "--all"])
    assert isinstance(result.exception, ValueError)
    assert "1 of 2 could not be set up: absent; the reasons are above" in str(result.exception)
    lines = result.output.splitlines()
    assert lines[:2] == ["absent: of unknown size", "tiny: 1.5 GB"]
    assert lines[2].startswith("together 1.5 GB to make; ")
    assert any(line.startswith("absent failed: 'uv") or "absent failed:" in line for line in lines)
    assert "tiny is set up: Python" in result.output
    lock.with_name("absent.lock").write_text(LOCK)
    again = rrf("envs", "setup", "tiny", "absent")
    assert "tiny: 1.5 GB, there already" in again
    assert "absent is set up" in again
    for words, message in (
        (["--all", "tiny"], "give names, or --all; there are: absent, tiny"),
        ([], "give names, or --all"),
        (["--all", "--source", str(home)], "--source is for one interpreter"),
    ):
        with pytest.raises(ValueError, match=message):
            rrf("envs", "setup", *words)
    lock.write_text(f"# size: 1e9 GB\n# changed\n{LOCK}")
    interpreters.atomic.remove(home / ".rrf/envs/tiny")
    with pytest.raises(ValueError, match=r"tiny take 1000000000\.0 GB, and the disk of .* GB left"):
        rrf("envs", "setup", "tiny")


def test_files_that_make_the_rest_are_a_part_of_a_lock(home, monkeypatch):
    monkeypatch.setattr(interpreters, "_ENVS", home)
    lock = home / "configs/envs/tiny.lock"
    lock.write_text(f"# prepare: make.py parts.py\n{LOCK}")
    (home / "make.py").write_text("import sys, parts; print(parts.said, sys.argv[1])")
    (home / "parts.py").write_text("said = 'made'")
    assert "\nmade " in rrf("envs", "setup", "tiny")
    assert "there already" in rrf("envs", "setup", "tiny")
    (home / "parts.py").write_text("said = 'made otherwise'")
    with pytest.raises(ValueError, match="has changed since 'tiny' was set up"):
        interpreters.interpreter("tiny")
    assert "\nmade otherwise " in rrf("envs", "setup", "tiny")


def test_an_interrupted_setup_leaves_nothing_that_counts_and_goes_on(home, monkeypatch):
    run, commands = interpreters._run, []

    def interrupted(command, *more, **how):
        commands.append(command)
        if len(commands) == 2:
            raise KeyboardInterrupt
        return run(command, *more, **how)

    monkeypatch.setattr(interpreters, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        interpreters.setup("tiny")
    with pytest.raises(ValueError, match="not set up here; type: rrf envs setup tiny"):
        interpreters.interpreter("tiny")
    [partial] = interpreters.folder().glob(".partial-*")
    (partial / "kept").touch()
    assert interpreters.setup("tiny")
    assert (interpreters.folder() / "tiny/kept").exists()


def test_a_workspace_that_overrides_versions_does_not_change_those_of_a_lock(home, monkeypatch):
    (home / "pyproject.toml").write_text('[tool.uv]\noverride-dependencies = ["tiny-wheel==9.9"]\n')
    monkeypatch.chdir(home)
    assert interpreters.setup("tiny")
    assert interpreters.interpreter("tiny").versions["tiny-wheel"] == "1.0"


def test_other_versions_than_those_of_the_lock_are_refused(home):
    lock = interpreters.read_lock("tiny")
    with pytest.raises(ValueError, match=r"tiny\.lock pins tiny-wheel==1\.0, but 0\.9 was inst"):
        interpreters._check_pins(lock, [{"name": "Tiny_Wheel", "version": "0.9"}])


def test_what_cannot_be_installed_is_told_by_the_installer(home):
    (home / "configs/envs/tiny.lock").write_text("no-such-package==1.0\n")
    with pytest.raises(ValueError, match=r"failed: .*no.such.package"):
        interpreters.setup("tiny")
    assert interpreters.names() == []


def test_a_python_that_does_not_fit_is_told(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))  # looking at many Pythons takes long
    (home / "configs/envs/tiny.lock").write_text("# requires-python: >=3.99\ntiny-wheel==1.0\n")
    with pytest.raises(ValueError, match=r"3\.99"):
        interpreters.setup("tiny")
    monkeypatch.setattr(interpreters, "_uv", lambda: None)
    with pytest.raises(ValueError, match=r"tiny\.lock needs Python >=3\.99, which is not among"):
        interpreters.setup("tiny")


@pytest.mark.slow
def test_pip_does_it_where_there_is_no_uv(home, monkeypatch):
    monkeypatch.setattr(interpreters, "_uv", lambda: None)
    assert interpreters.setup("tiny")
    assert interpreters.interpreter("tiny").python.exists()


@pytest.mark.parametrize(
    "line", ["numpy", "numpy>=1", "numpy @ file:///x", "-r other.txt", "--index-url=x"]
)
def test_a_lock_pins_and_nothing_else(home, line):
    (home / "configs/envs/tiny.lock").write_text(f"tiny-wheel==1.0\n{line}\n")
    with pytest.raises(ValueError, match=r"tiny\.lock:2 is '.*', but must be like numpy==1\.26\.4"):
        interpreters.read_lock("tiny")
    with pytest.raises(ValueError, match=r"has no tyni\.lock; .*tiny"):
        interpreters.read_lock("tyni")


def test_an_interpreter_that_exists_is_noted(home, bare_python):
    said = rrf(
        *("envs", "add", "other", bare_python, "--cwd", home),
        *("--variable", "ROOT=/a=b", "--variable", "EMPTY="),
    )
    assert "other is noted: Python 3." in said
    found = interpreters.interpreter("other")
    assert (found.python, found.cwd) == (bare_python, str(home))
    assert found.variables == {"ROOT": "/a=b", "EMPTY": ""}
    with pytest.raises(ValueError, match="must be like KEY=VALUE"):
        rrf("envs", "add", "other", bare_python, "--variable", "ROOT")
    with pytest.raises(ValueError, match="'tiny' has a lock; type: rrf envs setup tiny"):
        interpreters.add("tiny", bare_python)
    with pytest.raises(ValueError, match="does not run: No such file"):
        interpreters.add("third", home / "python")
    with pytest.raises(ValueError, match=r"'\.\./x' cannot be a name"):
        interpreters.add("../x", bare_python)
    record = interpreters.folder() / "other" / interpreters.RECORD
    record.write_text(json.dumps({"python": 3}))
    with pytest.raises(ValueError, match=r"is damaged .*; type: rrf envs add other PYTHON"):
        interpreters.interpreter("other")


def test_the_locks_of_the_project_pin_everything(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.setenv("RRF_HOME", str(root))
    for name in interpreters.locks():
        lock = interpreters.read_lock(name)
        assert lock.imports
        urls = {f"{c.url}" for c in lock.checkouts.values()}
        assert all(len(c.commit) == 40 for c in lock.checkouts.values())
        assert lock.path.read_text().count("://") == len(urls)


@pytest.fixture
def repository(tmp_path) -> tuple[Path, str]:
    """A repository with two commits, and the first of them."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*words):
        names = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        done = subprocess.run(
            ["git", "-C", folder, *names, *words], check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    git("init", "--quiet")
    for text in ("first", "second"):
        (folder / "said.txt").write_text(text)
        git("add", "said.txt")
        git("commit", "--quiet", "-m", text)
    return folder, git("rev-parse", "HEAD~1")


def test_a_repository_is_cloned_at_its_commit_and_counts_as_a_package(home, repository):
    folder, commit = repository
    lock = home / "configs/envs/tiny.lock"
    lock.write_text(f"{LOCK}# checkout: its-assets MIT {folder} {commit}\n")
    assert f"cloning {folder}" in rrf("envs", "setup", "tiny")
    found = interpreters.interpreter("tiny")
    assert (Path(found.variables["ITS_ASSETS_PATH"]) / "said.txt").read_text() == "first"
    assert found.versions["its-assets"] == commit
    assert "MIT" in rrf("envs", "list", "--packages")


def test_a_clone_that_is_there_can_be_taken_and_must_have_the_commit(home, repository, tmp_path):
    folder, commit = repository
    lock, absent, said = home / "configs/envs/tiny.lock", tmp_path / "absent", []
    with pytest.raises(ValueError, match=r"tiny\.lock names 0 repositories; leave out --source"):
        interpreters.setup("tiny", source=folder)
    lock.write_text(f"{LOCK}# checkout: its-assets MIT {absent} {commit}\n")
    with pytest.raises(ValueError, match=rf"failed: .*type: git clone {absent}; .*--source FOLDER"):
        interpreters.setup("tiny", say=said.append)
    assert said == [f"cloning {absent}"]  # before minutes of installing
    with pytest.raises(ValueError, match="not set up here"):
        interpreters.interpreter("tiny")
    rrf("envs", "setup", "tiny", "--source", folder)
    assert interpreters.interpreter("tiny").versions["its-assets"] == commit
    lock.write_text(f"{LOCK}# checkout: its-assets MIT {absent} {'0' * 40}\n")
    with pytest.raises(ValueError, match=r"git .*failed"):
        interpreters.setup("tiny", source=folder)
