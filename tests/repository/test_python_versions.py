"""One lock serves every Python that pyproject.toml allows, and `make setup` finds one that serves.

The Pythons and the uv on the PATH of these tests are stand-ins. They answer in this interpreter,
under another version number, and what they would download is a file.
"""

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rrf.cli.doctor import _BAD, _OK, _python

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NEEDED = SpecifierSet(PROJECT["project"]["requires-python"])
VERSIONS = [f"3.{minor}" for minor in range(30) if NEEDED.contains(f"3.{minor}.1")]
LOCKED_EXTRAS = ["dev", "docs", "envpool", "locomotion", "onnx", "postgres", "rlds", "s3", "wandb"]


# ------------------------------------------------------------------------------------ the lock


def machine(version: str, extra: str = "") -> dict[str, str]:
    """What markers ask about: this machine with another Python."""
    return {"python_version": version, "python_full_version": f"{version}.5", "extra": extra}


def locked(version: str) -> dict[str, str]:
    """Name and version of everything that the lock installs under this Python."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    found = [Requirement(line) for line in lines]
    assert all(one.url is None and len(one.specifier) == 1 for one in found)
    return {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in found
        if one.marker is None or one.marker.evaluate(machine(version))
    }


def left_out() -> set[str]:
    """Packages that [tool.uv] keeps from every machine."""
    overrides = [Requirement(line) for line in PROJECT["tool"]["uv"]["override-dependencies"]]
    return {one.name for one in overrides if one.marker and not one.marker.evaluate()}


@functools.cache
def declared(name: str) -> list[Requirement]:
    """All that an installed package asks for anywhere; nothing if it is for other Pythons only."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires(name) or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def requirements(name: str, extras: frozenset[str], version: str) -> list[Requirement]:
    """What an installed package asks for under this Python."""
    return [
        one
        for one in declared(name)
        if one.marker is None
        or any(one.marker.evaluate(machine(version, extra)) for extra in extras | {""})
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lock_has_all_that_is_needed(version):
    lock, without, seen = locked(version), left_out(), set()
    waiting = [("rrf", frozenset(LOCKED_EXTRAS))]
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        for one in requirements(*package, version):
            name = canonicalize_name(one.name)
            if name in without:
                continue
            assert name in lock, f"Python {version}: {package[0]} needs {one}, which is not locked"
            if package[0] == "rrf":
                assert one.specifier.contains(lock[name]), f"Python {version}: {one}"
            waiting.append((name, frozenset(one.extras)))
    assert len({name for name, _ in seen}) > 300


def test_the_versions_are_the_same_everywhere():
    assert VERSIONS == ["3.12", "3.13"]
    prefix = "Programming Language :: Python :: "
    classifiers = PROJECT["project"]["classifiers"]
    assert [one.removeprefix(prefix) for one in classifiers if one.startswith(prefix)] == VERSIONS
    assert PROJECT["tool"]["pyright"]["pythonVersion"] == VERSIONS[0]
    assert f"Python {VERSIONS[0]} or {VERSIONS[-1]}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("minor", "status"), [(11, _BAD), (12, _OK), (13, _OK), (14, _BAD)])
def test_doctor_judges_by_the_installed_package(monkeypatch, minor, status):
    info = namedtuple("info", "major minor micro")
    monkeypatch.setattr(sys, "version_info", info(3, minor, 5))
    assert _python()[0] == status


# ------------------------------------------------------------------------------------ make setup

TOOLS = [
    "bash",
    "cat",
    "chmod",
    "cp",
    "dirname",
    "env",
    "grep",
    "make",
    "mkdir",
    "rm",
    "sed",
    "seq",
    "sort",
    "touch",
]
PYTHON = """#!/bin/bash
case "$1 $2" in
  "-c "*) exec {real} -c 'import sys; sys.version_info = ({version}, 5)
if {bare}: sys.modules["ensurepip"] = None
exec(sys.argv[1])' "$2" ;;
  "-m venv") mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
  "-m pip") [[ $3 == --version ]] || cp "$TOOLS/uv" "$(dirname "$0")/uv" ;;
esac
"""
UV = """#!/bin/bash
echo "uv $*" >> "$TOOLS/log"
case "$1 $2" in
  "venv "*) mkdir -p .venv/bin && cp "$TOOLS/fetched" .venv/bin/python ;;
  "pip install") cp "$TOOLS/uv" .venv/bin/uv ;;
esac
"""


class Checkout:
    """What `make setup` needs of the repository, beside a PATH with what a test puts there."""

    def __init__(self, home: Path):
        self.home, self.path, self.tools = home / "rrf", home / "bin", home / "tools"
        for folder in (self.home / "infra", self.path, self.tools):
            folder.mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "requirements.lock", "infra/venv.sh"):
            shutil.copy(ROOT / name, self.home / name)
        for name in TOOLS:
            (self.path / name).symlink_to(shutil.which(name))
        self.program(self.tools / "uv", UV)
        self.python("3.12", at=self.tools / "fetched")

    def program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def python(self, version: str, name: str = "", bare: bool = False, at: Path | None = None):
        """Put a Python there. A bare one lacks ensurepip, as on Debian without python3-venv."""
        numbers = version.replace(".", ", ")
        text = PYTHON.format(real=sys.executable, version=numbers, bare=bare)
        self.program(at or self.path / (name or f"python{version}"), text)

    def pyenv(self, version: str) -> None:
        """Put a Python among pyenv's."""
        minor = version.rpartition(".")[0]
        folder = self.home.parent / ".pyenv" / "versions" / version / "bin"
        folder.mkdir(parents=True)
        self.python(minor, at=folder / f"python{minor}")

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.path), "TOOLS": str(self.tools), "HOME": str(self.home.parent)}
        command = [str(self.path / "make"), "setup", *arguments]
        return subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True)

    def made_with(self, *arguments: str) -> str:
        """The version in .venv after `make setup`, which has to work."""
        result = self.setup(*arguments)
        assert result.returncode == 0, result.stderr
        self.setup_output = result.stdout
        assert os.access(self.home / ".venv/bin/uv", os.X_OK)
        text = (self.home / ".venv/bin/python").read_text()
        return ".".join(re.findall(r"version_info = \((\d+), (\d+)", text)[0])

    def uv_calls(self) -> str:
        log = self.tools / "log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_only_python_serves_whatever_its_name(checkout, version):
    checkout.python(version, "python3")
    assert checkout.made_with() == version
    assert "uv venv" not in checkout.uv_calls()


def test_a_python_that_serves_is_found_among_others(checkout):
    checkout.python("3.14", "python3")
    checkout.python("3.11", "python")
    checkout.program(checkout.path / "python3.13", "#!/bin/bash\nexit 127\n")  # a shim of pyenv
    checkout.python("3.12")
    assert checkout.made_with() == "3.12"


def test_the_newest_version_is_taken_first(checkout):
    for version in ("3.11", "3.12", "3.13"):
        checkout.python(version)
    checkout.python("3.12", "python3")
    assert checkout.made_with() == "3.13"


def test_one_of_pyenv_is_found_where_its_shims_do_not_run(checkout):
    checkout.python("3.11", "python3")
    for version in ("3.12.9", "3.12.10", "3.14.1"):
        checkout.pyenv(version)
    assert checkout.made_with() == "3.12"
    assert "3.12.10/bin/python3.12" in checkout.setup_output


def test_a_version_can_be_named(checkout):
    checkout.python("3.12")
    checkout.python("3.13")
    assert checkout.made_with("PYTHON=3.12") == "3.12"
    shutil.rmtree(checkout.home / ".venv")
    result = checkout.setup("PYTHON=3.11")
    assert result.returncode == 2
    assert "error: PYTHON=3.11; Python 3.12 to 3.13 is needed" in result.stderr
    assert not (checkout.home / ".venv").exists()


def test_a_version_that_is_not_here_is_fetched(checkout):
    checkout.python("3.13", "python3")
    assert checkout.made_with("PYTHON=3.12") == "3.12"
    assert "Python 3.12 is needed; found: " in checkout.setup_output
    assert "--python 3.12 .venv\n" in checkout.uv_calls()


def test_the_python_that_is_named_is_taken(checkout):
    checkout.python("3.13")
    checkout.python("3.12")
    assert checkout.made_with(f"PYTHON={checkout.path}/python3.12") == "3.12"


@pytest.mark.parametrize(
    ("version", "bare", "says"),
    [
        ("3.14", False, r"is Python 3\.14; Python 3\.12 to 3\.13 is needed"),
        ("3.13", True, r"has no ensurepip .*apt install python3\.13-venv"),
    ],
)
def test_a_named_python_that_does_not_serve_is_refused(checkout, version, bare, says):
    checkout.python(version, "mine", bare=bare)
    result = checkout.setup("PYTHON=mine")
    assert result.returncode == 2
    assert re.search(rf"error: PYTHON=mine {says}", result.stderr)
    assert "error: PYTHON=gone does not run" in checkout.setup("PYTHON=gone").stderr
    assert not (checkout.home / ".venv").exists()


@pytest.mark.parametrize("version", ["3.11", "3.14"])
def test_another_python_has_uv_fetch_one(checkout, version):
    checkout.python(version, "python3")
    assert checkout.made_with() == "3.12"
    assert f"--python {PROJECT['project']['requires-python']} .venv\n" in checkout.uv_calls()


def test_the_uv_of_the_machine_needs_no_python(checkout):
    shutil.copy(checkout.tools / "uv", checkout.path / "uv")
    assert checkout.made_with() == "3.12"
    assert not (checkout.home / "build").exists()


def test_a_uv_that_cannot_fetch_one_is_followed_by_advice(checkout):
    checkout.program(checkout.path / "uv", "#!/bin/bash\necho 'error: no network' >&2\nexit 1\n")
    result = checkout.setup()
    assert result.returncode == 2
    assert "error: no network\nerror: uv found none. Install Python 3.12 to 3.13" in result.stderr


def test_without_any_python_the_error_says_which_is_needed(checkout):
    result = checkout.setup()
    assert result.returncode == 2
    assert "Python 3.12 to 3.13 is needed; found: none. Install Python 3.12" in result.stderr
    assert "Or install uv" in result.stderr


def test_without_ensurepip_the_error_says_what_to_install(checkout):
    checkout.python("3.13", "python3", bare=True)
    result = checkout.setup()
    assert result.returncode == 2
    assert f"found: {checkout.path}/python3 is Python 3.13 without ensurepip" in result.stderr
    assert "apt install python3-venv" in result.stderr
    assert "make PYTHON=" in result.stderr
    assert not (checkout.home / ".venv").exists()
    checkout.python("3.13", "python3")  # what the error says to install
    assert checkout.made_with() == "3.13"


def test_an_environment_that_is_unfinished_or_of_another_python_is_made_anew(checkout):
    checkout.python("3.12")
    unfinished = checkout.home / ".venv" / "bin"
    unfinished.mkdir(parents=True)
    checkout.python("3.11", at=unfinished / "python")
    assert checkout.made_with() == "3.12"


def test_a_good_environment_stays(checkout):
    checkout.python("3.12")
    checkout.made_with()
    checkout.python("3.13")
    (checkout.home / "requirements.lock").touch()
    (checkout.home / ".venv" / ".installed").unlink()
    assert checkout.made_with() == "3.12"


# ------------------------------------------------------------------------------------ a checkout


def test_an_older_python_gets_one_line_from_a_checkout():
    names = [f"python3.{minor}" for minor in range(8, 12)]
    olds = [name for name in names if shutil.which(name) and runs(name)]
    if not olds:
        pytest.skip("this machine has no Python older than 3.12")
    for old in olds:
        done = subprocess.run(
            [old, "-m", "rrf", "doctor"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: rrf needs Python 3.12 or newer, but /")
        assert line.endswith(f" is {old.removeprefix('python')}")


def runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
