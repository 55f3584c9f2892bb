"""Libraries from Debian's packages, unpacked into a folder: nothing is installed, no root needed.

For simulators that need newer libraries than the system has. A lock names the packages with their
versions and SHA-256 digests. apt downloads them from the mirror that this system uses already, with
lists of its own, so that it finds suites which the system's sources do not name (backports).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rrf import atomic


def unpack(
    suites: Sequence[str],
    packages: Mapping[str, str],
    folder: Path,
    run: Callable[..., str],
) -> None:
    """Download packages and unpack them into `folder`.

    Args:
        suites: Suites of Debian, the release first: bookworm, bookworm-backports.
        packages: `NAME=VERSION` -> SHA-256 of the file.
        folder: Where to. It need not exist.
        run: `run(command, cwd=None)` returns what a command prints, or raises a ValueError.

    Raises:
        ValueError: If there is no apt, if it knows no mirror of this release, or if a package is
            not to be had as it was pinned.
    """
    mirrors = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"])
    known = [line.split() for line in mirrors.splitlines()]
    mirror = next((words[0] for words in known if words[1:] == [suites[0]]), None)
    if mirror is None:
        raise ValueError(f"apt has no source of Debian {suites[0]}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        state = Path(scratch)
        for part in ("lists/partial", "cache/archives/partial", "packages"):
            (state / part).mkdir(parents=True)
        sources = "".join(f"deb {mirror} {suite} main\n" for suite in suites)
        (state / "sources.list").write_text(sources)
        apt = [
            *("apt-get", "--quiet", "-o", f"Dir::State::Lists={state / 'lists'}"),
            *("-o", f"Dir::Cache={state / 'cache'}", "-o", "Dir::State::status=/dev/null"),
            *("-o", f"Dir::Etc::SourceList={state / 'sources.list'}"),
            *("-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User="),
        ]
        run([*apt, "update"])
        run([*apt, "download", *packages], cwd=state / "packages")
        files = {path: atomic.sha256(path) for path in (state / "packages").glob("*.deb")}
        if sorted(files.values()) != sorted(packages.values()):
            wrong = sorted(path.name for path in files if files[path] not in packages.values())
            raise ValueError(
                f"{', '.join(wrong) or 'a package'} is not what the lock's digest says"
            )
        for path in files:
            run(["dpkg-deb", "--extract", path, folder])
