"""A container engine of a test's own, and the images that the stack is built from, without a
registry: Debian by debootstrap, Python from the interpreter of the tests.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

ENGINE = "RRF_TEST_ENGINE"
"""Names the socket of an engine that a developer keeps; the images that it has are not built."""
_PATH = os.pathsep.join(["/usr/sbin", "/usr/bin", "/sbin", "/bin"])
_NEEDED = ("dockerd", "docker", "docker-compose", "debootstrap")
_FREE_BYTES = 40e9
_LIBRARIES = (
    "ca-certificates libssl3 libffi8 libsqlite3-0 zlib1g libbz2-1.0 liblzma5 libreadline8"
    " libncursesw6 libuuid1"
)
_PYTHON = f"""
FROM rrf-test/debian
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends {_LIBRARIES} >/dev/null
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY python /usr/local
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
WORKDIR /usr/local/bin
RUN ldconfig && ln -sf python3.12 python3 && ln -sf python3.12 python \\
    && python -c 'import ssl, sqlite3, lzma, bz2, ctypes'
"""


def require() -> None:
    """Skip the test where there is no engine."""
    missing = [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed (as root: sh infra/stack-packages.sh)")
    if os.geteuid() != 0:
        pytest.skip("an engine of its own needs root")
    if sys.version_info[:2] != (3, 12):
        pytest.skip("the images have the Python of the tests, and the lock is tried on 3.12")
    if not os.environ.get(ENGINE) and shutil.disk_usage("/tmp").free < _FREE_BYTES:
        pytest.skip(f"the images need {_FREE_BYTES / 1e9:.0f} GB of free disk")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Run an engine below `folder`; yields the environment of its clients."""
    env = {**os.environ, "PATH": f"{_PATH}{os.pathsep}{os.environ['PATH']}", "DOCKER_BUILDKIT": "1"}
    if socket := os.environ.get(ENGINE):
        yield env | {"DOCKER_HOST": f"unix://{socket}"}
        return
    socket = folder / "docker.sock"
    rules = subprocess.run(["iptables-save"], env=env, capture_output=True, check=True).stdout
    command = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec"]
    command += ["-H", f"unix://{socket}", "--pidfile", folder / "pid"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    env |= {"DOCKER_HOST": f"unix://{socket}"}
    try:
        wait_for(
            lambda: process.poll() is not None or _answers(env),
            found=lambda: (folder / "log").read_text()[-2000:],
        )
        if process.poll() is not None:
            pytest.skip(f"dockerd does not run here: {(folder / 'log').read_text()[-300:]}")
        yield env
    finally:
        process.terminate()
        process.wait(timeout=120)
        subprocess.run(["iptables-restore"], env=env, input=rules, check=False)
        shutil.rmtree(folder / "data", ignore_errors=True)


def _answers(env: dict[str, str]) -> bool:
    return subprocess.run(["docker", "info"], env=env, capture_output=True).returncode == 0


def run(env: dict[str, str], *command, check: bool = True, timeout_s: float = 3600) -> str:
    """Output of a command."""
    done = subprocess.run(
        list(map(str, command)),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert not check or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
    return done.stdout if done.returncode == 0 or not check else ""


def make_bases(env: dict[str, str], folder: Path) -> None:
    """Make the images `rrf-test/debian` and `rrf-test/python`, unless the engine has them."""
    if not run(env, "docker", "images", "-q", "rrf-test/debian").strip():
        root = folder / "debian"
        mirror = "http://deb.debian.org/debian"
        run(env, "debootstrap", "--variant=minbase", "bookworm", root, mirror)
        tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        command = ["docker", "import", "-", "rrf-test/debian"]
        subprocess.run(command, env=env, stdin=tar.stdout, check=True, capture_output=True)
        assert tar.wait() == 0
        shutil.rmtree(root)
    if run(env, "docker", "images", "-q", "rrf-test/python").strip():
        return
    context, prefix = folder / "python-image", Path(sys.base_prefix)
    (context / "python/bin").mkdir(parents=True)
    (context / "python/lib").mkdir()
    shutil.copy2(prefix / "bin/python3.12", context / "python/bin")
    for library in prefix.glob("lib/libpython3*.so*"):
        shutil.copy2(library, context / "python/lib")
    skipped = shutil.ignore_patterns("__pycache__", "test", "config-*", "site-packages")
    shutil.copytree(prefix / "lib/python3.12", context / "python/lib/python3.12", ignore=skipped)
    shutil.copy2("/etc/ssl/certs/ca-certificates.crt", context)
    (context / "Dockerfile").write_text(_PYTHON)
    run(env, "docker", "build", "-q", "--network", "host", "-t", "rrf-test/python", context)
