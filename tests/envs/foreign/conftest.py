"""A foreign interpreter with NumPy and nothing else: neither rrf nor what rrf needs."""

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from rrf.envs.foreign import interpreters


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> Path:
    """A virtual environment of this Python with its NumPy only."""
    root = tmp_path_factory.mktemp("bare")
    venv.create(root / "env", symlinks=True, with_pip=False)
    packages = root / "packages"
    packages.mkdir()
    for found in Path(sysconfig.get_paths()["purelib"]).glob("numpy*"):
        (packages / found.name).symlink_to(found)
    minor = f"python3.{sys.version_info.minor}"
    (root / "env/lib" / minor / "site-packages/numpy.pth").write_text(f"{packages}\n")
    return root / "env/bin/python"


@pytest.fixture
def home(bare_python, tmp_path, monkeypatch) -> Path:
    """A workspace that has the interpreter `dots`."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    interpreters.add("dots", bare_python)
    return tmp_path
