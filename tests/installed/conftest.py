"""The wheel, built from what `git clone` would give, and an environment with it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BUILD = "import setuptools.build_meta as backend; print(backend.build_{kind}({out!r}))"
_DVC = "#!{python}\nimport sys\nfrom dvc.cli import main\nsys.exit(main())\n"


class Installed:
    """An environment with the wheel, and a user who has set nothing up."""

    def __init__(self, environment: Path, home: Path):
        self.python = environment / "bin/python"
        ours = ("RRF_", "MLFLOW_", "PREFECT_", "GIT_", "XDG_", "DVC_", "PYTHON", "VIRTUAL_ENV")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        path = f"{environment / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
        own = {"HOME": str(home), "PATH": path, "GIT_CONFIG_NOSYSTEM": "1", "OMP_NUM_THREADS": "1"}
        self.environment = kept | own

    def run(self, script: str, cwd: Path, code: int = 0) -> str:
        """What a user's shell prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, f"{script}\n{done.stdout[-3000:]}"
        return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build the "sdist" or the "wheel" of a source folder as an installer does."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(kind=kind, out=str(out))],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """What `git clone` would give, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    folder = tmp_path_factory.mktemp("source")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "infra/dvc-demo/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def wheel(source, tmp_path_factory) -> Path:
    """The wheel of the checkout."""
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_of_sdist(source, tmp_path_factory) -> Path:
    """The wheel that the source distribution gives."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", source, folder)) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", next(path for path in folder.iterdir() if path.is_dir()), folder)


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Installed:
    """A new environment with the wheel. It borrows all other packages from this one; rrf is not
    among them, because the files that make an editable rrf importable are not read there.
    """
    uv = pytest.importorskip("uv", reason="uv is not installed: uv pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    lent = folder / sysconfig.get_path("purelib", vars={"base": str(folder)})
    (lent / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [uv.find_uv_bin(), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", python, wheel], check=True)
    dvc = folder / "bin/dvc"
    dvc.write_text(_DVC.format(python=python))
    dvc.chmod(0o755)
    found = Installed(folder, tmp_path_factory.mktemp("home"))
    where = found.run("python -c 'import rrf; print(rrf.__file__)'", folder)
    assert Path(where.strip()).is_relative_to(folder)
    return found
