"""What a lock takes from elsewhere: packages of our own environment, libraries of Debian's."""

import hashlib
import os
import subprocess
import zipfile

import pytest

from rrf.envs.foreign import interpreters
from tests.envs.foreign.test_interpreters import LOCK, home

__all__ = ["home"]

APT = r"""#!/bin/sh
case "$*" in
*indextargets*) echo "http://mirror/debian bookworm"; exit;;
*update*) list=$(echo "$*" | sed 's/.*SourceList=\([^ ]*\).*/\1/')
  grep -qx "deb http://mirror/debian bookworm-backports main" "$list"; exit;;
*download*) printf content > library_1.0_all.deb; exit;;
esac
exit 1
"""
UNPACK = """#!/bin/sh
mkdir -p "$3" && cp "$2" "$3/library"
"""
SHA256 = hashlib.sha256(b"content").hexdigest()
CHECK = "import os; assert open(os.environ['LIBRARY']).read() == 'content'"


@pytest.fixture
def tools(home, monkeypatch):
    """A folder of commands that stand before the system's."""
    folder = home / "tools"
    folder.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", UNPACK)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("LIBRARY", raising=False)
    return folder


def write_lock(home, digest=SHA256, suites="bookworm bookworm-backports", check=CHECK):
    (home / "configs/envs/tiny.lock").write_text(
        f"# check: {check}\n# debian: {suites}\n# deb: library=1.0 {digest}\n"
        f"# variables: LIBRARY={{debian}}/library\n{LOCK}"
    )


def test_libraries_are_unpacked_where_the_check_needs_them(home, tools):
    write_lock(home)
    assert interpreters.setup("tiny")
    found = interpreters.interpreter("tiny")
    assert found.variables == {"LIBRARY": str(home / ".rrf/envs/tiny/debian/library")}
    assert (home / ".rrf/envs/tiny/debian/library").read_text() == "content"
    subprocess.run([found.python, "-c", CHECK], env=found.variables, check=True)


def test_nothing_is_unpacked_where_the_systems_own_libraries_do(home, tools):
    write_lock(home, check="import sys")
    (tools / "apt-get").unlink()
    assert interpreters.setup("tiny")
    assert interpreters.interpreter("tiny").variables == {}
    assert not (home / ".rrf/envs/tiny/debian").exists()


def test_a_package_that_is_not_the_pinned_one_is_refused(home, tools):
    write_lock(home, digest="0" * 64)
    with pytest.raises(ValueError, match=r"library_1.0_all.deb is not what the lock's digest says"):
        interpreters.setup("tiny")
    assert interpreters.names() == []


def test_a_system_without_that_debian_says_what_is_needed(home, tools, monkeypatch):
    write_lock(home, suites="trixie")
    with pytest.raises(ValueError, match=r"AssertionError|KeyError") as caught:
        interpreters.setup("tiny")
    assert "apt has no source of Debian trixie" in str(caught.value)
    assert "install that on this system and repeat" in str(caught.value)
    (tools / "apt-get").unlink()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(ValueError, match="apt-get does not run: No such file"):
        interpreters.setup("tiny")


def test_shared_packages_are_those_of_our_own_environment(home):
    (home / "configs/envs/tiny.lock").write_text(f"# shares: rich\n{LOCK}")
    assert interpreters.setup("tiny")
    found = interpreters.interpreter("tiny")
    code = "import rich, markdown_it; print(rich.__file__)"  # rich requires the other
    run = [found.python, "-s", "-c", code]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert printed.startswith(str(home / ".rrf/envs/tiny/lib"))
    import rich

    assert os.path.samefile(printed.strip(), rich.__file__)  # noqa: PTH121
    assert "rich" in {package["name"] for package in found.record["packages"]}


def test_what_the_lock_pins_is_not_shared_in_another_version(home):
    """Two versions of a package would be found in the order of the folder's entries."""
    with zipfile.ZipFile(home / "wheels/markdown_it_py-0.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("markdown_it/__init__.py", "")
        about = "Metadata-Version: 2.1\nName: markdown-it-py\nVersion: 0.1\n"
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("markdown_it_py-0.1.dist-info/METADATA", about)
        wheel.writestr("markdown_it_py-0.1.dist-info/WHEEL", tag)
        wheel.writestr("markdown_it_py-0.1.dist-info/RECORD", "")
    (home / "configs/envs/tiny.lock").write_text(f"# shares: rich\n{LOCK}markdown-it-py==0.1\n")
    assert interpreters.setup("tiny")
    packages = interpreters.interpreter("tiny").record["packages"]
    versions = [p["version"] for p in packages if p["name"] == "markdown-it-py"]
    assert versions == ["0.1"]
