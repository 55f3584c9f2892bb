"""The foreign interpreters of a workspace, by name: `.rrf/envs/NAME/environment.json`.

`rrf envs setup` makes one from a lock, `rrf envs add` notes one that exists. A lock is a file
`configs/envs/NAME.lock` of pinned requirements. Its first lines say more, as `# key: value`:

| key               | value                                                                        |
|-------------------|------------------------------------------------------------------------------|
| `requires-python` | For which Pythons it is.                                                     |
| `imports`         | Which modules must then be importable.                                       |
| `shares`          | Packages that it takes from rrf's own environment, with what these require.  |
| `check`           | A statement that must run. If it does not, the Debian packages are unpacked. |
| `debian`          | The suites of Debian that have them, the release first.                      |
| `deb`             | NAME=VERSION and the SHA-256 of its file; one line for each package.         |
| `variables`       | KEY=VALUE, set if the packages were unpacked; {debian} is their folder.      |
| `prepare`         | A file below rrf/envs that the new Python runs at the end, given its folder: |
|                   | it makes what the simulator needs besides packages. Files that it imports    |
|                   | may follow; when one of them changes, the interpreter is made anew.          |
| `size`            | What it takes on the disk, e.g. 1.9 GB.                                      |
| `checkout`        | NAME, licence, address and commit of a repository; one line for each. It is  |
|                   | cloned, counts as a package, and the variable NAME_PATH says where it is.    |
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rrf import atomic, workspace
from rrf.config import did_you_mean
from rrf.envs.foreign import checkouts, debian
from rrf.extras import NotSetUpError

RECORD = "environment.json"
_ENVS = Path(__file__).parents[1]
_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
_PIN = re.compile(r"[A-Za-z0-9._-]+==[^\s;@]+( *;.*)?$")
_DEBIAN = "debian"  # folder of an interpreter that has the unpacked packages
_CHECKOUTS = "checkouts"  # and the one that has the cloned repositories
_CHECKOUT = re.compile(r"# checkout: (\S+) (\S+) (\S+) ([0-9a-f]{40})$")
_PYTHONS = [f"python3.{minor}" for minor in range(8, 21)]
_LIST_PACKAGES = """
import importlib.metadata, json, platform
def licence(package):
    about = package.metadata
    named = [c.rpartition(":: ")[2] for c in about.get_all("Classifier") or [] if "License ::" in c]
    text = about.get("License-Expression") or ", ".join(named) or about.get("License") or ""
    for file in package.files or []:
        if not text.strip() and file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            text = file.read_text()
    return (text.strip() or "unknown").splitlines()[0][:80]
packages = importlib.metadata.distributions()
found = sorted([p.metadata["Name"], p.version, licence(p)] for p in packages)
print(json.dumps([platform.python_version(), found]))
"""


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python outside this environment."""

    name: str
    python: Path
    cwd: str | None = None
    """Directory it runs in; None for that of its parent."""
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables that it needs."""
    record: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    """What is known about it: version of Python, digest of the lock, packages with licences."""

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version, of all that it had when it was recorded."""
        packages = self.record.get("packages") or []
        return {canonicalize_name(p["name"]): p["version"] for p in packages}


@dataclasses.dataclass(frozen=True)
class Lock:
    """A file of pinned requirements."""

    path: Path
    requires_python: SpecifierSet
    imports: list[str]
    shares: list[str]
    check: str
    suites: list[str]
    debs: dict[str, str]
    """NAME=VERSION of Debian packages -> SHA-256."""
    variables: dict[str, str]
    """Environment variables that make the unpacked packages found."""
    prepare: list[Path]
    """What makes the rest, and the files that it imports; may be empty."""
    size_gb: float
    """What the interpreter takes on the disk; 0 if the lock does not say."""
    checkouts: "dict[str, checkouts.Checkout]"
    """Repositories that it needs, by name."""

    @property
    def digest(self) -> str:
        """Changes whenever the interpreter is to be made anew."""
        files = [self.path, *self.prepare]
        digests = [*map(atomic.sha256, files)]
        return atomic.digest_of(digests) if self.prepare else digests[0]


def folder() -> Path:
    """Where the interpreters of this workspace are recorded."""
    return workspace.state() / "envs"


def locks() -> dict[str, Path]:
    """The locks that there are, by name: those of the workspace, and those that rrf ships."""
    return workspace.configs("envs", ".lock")


def names() -> list[str]:
    """Names of the interpreters that have a record here."""
    return sorted(path.parent.name for path in folder().glob(f"[!.]*/{RECORD}"))


def interpreter(name: str) -> Interpreter:
    """The interpreter of this name.

    Raises:
        ValueError: If it is not set up (NotSetUpError), if its lock has changed since, or if its
            Python is gone. The message says what to type.
    """
    root = folder() / name
    command = f"rrf envs setup {name}" if name in locks() else f"rrf envs add {name} PYTHON"
    if not (root / RECORD).is_file():
        raise NotSetUpError(
            f"'{name}' runs in an interpreter of its own, which is not set up here; type: {command}"
        )
    try:
        record = json.loads((root / RECORD).read_text())
        python = root / record["python"]  # an absolute path stays as it is
        variables = {
            key: value.replace("{debian}", str(root / _DEBIAN)).replace("{folder}", str(root))
            for key, value in record["variables"].items()
        }
        result = Interpreter(name, python, record["cwd"], variables, record)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{root / RECORD} is damaged ({error}); type: {command}") from error
    if not python.exists():
        raise ValueError(f"the Python of '{name}', {python}, is gone; type: {command}")
    digest = record.get("lock_sha256")
    if digest and name in locks() and read_lock(name).digest != digest:
        raise ValueError(f"{locks()[name]} has changed since '{name}' was set up; type: {command}")
    return result


def read_lock(name: str) -> Lock:
    """The lock of this name.

    Raises:
        ValueError: If there is none, or for a line that pins nothing.
    """
    if name not in locks():
        place = workspace.home() / "configs" / "envs"
        raise ValueError(f"{place} has no {name}.lock{did_you_mean(name, locks())}")
    path, said, debs, repositories = locks()[name], {}, {}, {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if deb := re.match(r"# deb: (\S+=\S+) ([0-9a-f]{64})$", line):
            debs[deb[1]] = deb[2]
        elif repository := _CHECKOUT.match(line):
            repositories[repository[1]] = checkouts.Checkout(*repository.groups())
        elif said_here := re.match(r"# ([a-z-]+): (.+)", line):
            said[said_here[1]] = said_here[2]
        elif line.strip() and not line.startswith("#") and not _PIN.match(line):
            raise ValueError(f"{path}:{number} is '{line}', but must be like numpy==1.26.4")
    return Lock(
        path=path,
        requires_python=SpecifierSet(said.get("requires-python", "")),
        imports=said.get("imports", "").split(),
        shares=said.get("shares", "").split(),
        check=said.get("check", ""),
        suites=said.get("debian", "").split(),
        debs=debs,
        variables=dict(pair.split("=", 1) for pair in said.get("variables", "").split()),
        prepare=[_ENVS / file for file in said.get("prepare", "").split()],
        size_gb=float(said.get("size", "0 GB").removesuffix(" GB")),
        checkouts=repositories,
    )


def sizes(names: Sequence[str]) -> list[str]:
    """What the interpreters of these locks take on the disk, in words: a line each, and the sum of
    those that are still to be made.

    Raises:
        ValueError: If there is no such lock, or the disk has too little space left.
    """
    lines, needed = [], 0.0
    for name in names:
        lock = read_lock(name)
        is_there = (folder() / name / RECORD).is_file()
        needed += 0.0 if is_there else lock.size_gb
        size = f"{lock.size_gb:.1f} GB" if lock.size_gb else "of unknown size"
        lines.append(f"{name}: {size}{', there already' if is_there else ''}")
    place = next(path for path in [folder(), *folder().parents] if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    if needed > free:
        raise ValueError(
            f"{', '.join(names)} take {needed:.1f} GB, and the disk of {folder()} has "
            f"{free:.1f} GB left; free some, or set RRF_HOME to a workspace on another disk"
        )
    return [*lines, f"together {needed:.1f} GB to make; {free:.1f} GB are free in {place}"]


def foreign_environment() -> dict[str, str]:
    """The environment variables of this process, without those that are for its own Python."""
    kept = {key: value for key, value in os.environ.items() if key not in _OURS}
    return kept | {"OMP_NUM_THREADS": "1"}


def setup(
    name: str,
    force: bool = False,
    say: Callable[[str], None] = lambda line: None,
    source: Path | None = None,
) -> bool:
    """Make the virtual environment of a lock; False if it is there already.

    It is made in a folder beside its place and renamed when it is complete and its modules can be
    imported. If that is interrupted, the next call goes on with what is there.

    Args:
        name: Of the lock.
        force: Make it again even if it is there.
        say: Called with what is being done.
        source: A clone of the repository that the lock names, instead of its address.

    Raises:
        ValueError: If there is no such lock, no fitting Python, another process is at it, or an
            installer fails. The message has the end of what the installer said.
    """
    lock, root = read_lock(name), folder() / name
    if source is not None and len(lock.checkouts) != 1:
        raise ValueError(
            f"{lock.path} names {len(lock.checkouts)} repositories; leave out --source"
        )
    with atomic.alone(folder() / f".lock-{name}", f"another process is setting up '{name}'"):
        if not force and (root / RECORD).is_file():
            record = json.loads((root / RECORD).read_text())
            if record.get("lock_sha256") == lock.digest:
                return False
        partial = folder() / f".partial-{name}-{lock.digest[:12]}"
        for other in folder().glob(f".partial-{name}-*"):
            if other != partial:
                atomic.remove(other)
        for repository in lock.checkouts.values():  # first, as it fails at once if offline
            say(f"cloning {source or repository.url}")
            place = partial / _CHECKOUTS / repository.name
            repository.clone_to(place, source, f"rrf envs setup {name}", _run)
        _install(lock, partial, say)
        record = _described(partial / "bin" / "python", lock)
        _check_pins(lock, record["packages"])
        variables = dict(lock.variables) if (partial / _DEBIAN).exists() else {}
        for repository in lock.checkouts.values():
            variables[repository.variable] = f"{{folder}}/{_CHECKOUTS}/{repository.name}"
            record["packages"].append(repository.as_package)
        location = {"python": "bin/python", "variables": variables}
        atomic.write_json(partial / RECORD, record | location)
        if root.exists():
            atomic.remove(root)
        partial.rename(root)
    return True


def add(
    name: str, python: Path, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> Interpreter:
    """Note an interpreter that exists, for instance one that comes with a simulator.

    Raises:
        ValueError: If the name has a lock or cannot be a folder's, or if the Python does not run
            or has no NumPy.
    """
    if name in locks():
        raise ValueError(f"'{name}' has a lock; type: rrf envs setup {name}")
    if "/" in name or not atomic.is_plain_name(name) or name.startswith("."):
        raise ValueError(f"'{name}' cannot be a name; take letters, digits and -")
    if cwd is not None and not cwd.is_dir():
        raise ValueError(f"there is no directory {cwd}")
    _run([python, "-s", "-c", "import sys, numpy; assert sys.version_info >= (3, 8)"])
    record = _described(python) | {
        "python": str(python.absolute()),
        "cwd": str(cwd.absolute()) if cwd else None,
        "variables": dict(variables or {}),
    }
    atomic.write_json(folder() / name / RECORD, record)
    return interpreter(name)


def _install(lock: Lock, root: Path, say: Callable[[str], None]) -> None:
    """Install what a lock names into the virtual environment `root`, which may be there in part."""
    uv = _uv()
    python = root / "bin" / "python"
    if uv:
        this_python_suits = lock.requires_python.contains(platform.python_version())
        if lock.shares and not this_python_suits:
            raise ValueError(
                f"{lock.path.name} takes {', '.join(lock.shares)} from rrf's own environment, so "
                f"that must have Python {lock.requires_python}, not {platform.python_version()}"
            )
        wanted = sys.executable if this_python_suits else lock.requires_python
        say(f"making a virtual environment with uv and Python {wanted}")
        _run([uv, "venv", "--quiet", "--allow-existing", "--python", wanted, root])
        say(f"installing {lock.path.name} with uv")
        install = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        chosen = _fitting_python(lock)
        say(f"making a virtual environment with {chosen}")
        _run([chosen, "-m", "venv", root])
        say(f"installing {lock.path.name} with pip")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # uv would otherwise read the workspace's pyproject.toml, whose overrides are not for these pins
    _run([*install, "--no-deps", "--requirement", lock.path], None, Path(root.anchor))
    _share(lock, python)
    variables = _add_libraries(lock, root, say)
    for module in lock.imports:
        say(f"importing {module}, which may compile")
        _run([python, "-s", "-c", f"import {module}"], variables)
    if lock.prepare:
        say(f"preparing: {lock.prepare[0].name}")
        if said := _run([python, "-s", lock.prepare[0], root], variables).strip():
            say(said)


def _check_pins(lock: Lock, packages: list[dict[str, str]]) -> None:
    """Raise ValueError if other versions than those of the lock are installed."""
    installed = {canonicalize_name(package["name"]): package["version"] for package in packages}
    for pin in _pins(lock):
        version = installed.get(canonicalize_name(pin.name))
        if version is None or not pin.specifier.contains(version, prereleases=True):
            raise ValueError(f"{lock.path.name} pins {pin}, but {version} was installed")


def _pins(lock: Lock) -> list[Requirement]:
    """The packages of a lock, without those that are perhaps for other Pythons."""
    lines = [line for line in lock.path.read_text().splitlines() if line.strip()]
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    return [pin for pin in pins if pin.marker is None]


def _share(lock: Lock, python: Path) -> None:
    """Link the packages that a lock shares, and what they require, into an environment. What the
    lock pins itself stays.
    """
    if not lock.shares:
        return
    place = _run([python, "-s", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    pinned = {canonicalize_name(pin.name) for pin in _pins(lock)}
    todo, done = list(lock.shares), set()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        package = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            link = Path(place.strip()) / top
            if canonicalize_name(name) in pinned:
                if link.is_symlink() and link.suffix == ".dist-info":  # by an earlier rrf
                    link.unlink()
            elif not link.exists():
                link.unlink(missing_ok=True)  # to what is gone
                link.symlink_to(Path(str(package.locate_file(top))).absolute())
        required = map(Requirement, package.requires or [])
        todo += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]


def _add_libraries(lock: Lock, root: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Unpack the Debian packages of a lock if its check fails without; the variables they need."""
    if not lock.check:
        return {}
    check = [root / "bin" / "python", "-s", "-c", lock.check]
    say(f"trying: {lock.check}")
    try:
        _run(check)
        return {}
    except ValueError as error:
        failed = error
    libraries = root / _DEBIAN
    variables = {key: text.format(debian=libraries) for key, text in lock.variables.items()}
    try:
        if not libraries.exists():
            say(f"the libraries of this system do not do; unpacking {len(lock.debs)} of Debian's")
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                debian.unpack(lock.suites, lock.debs, Path(scratch) / _DEBIAN, _run)
                (Path(scratch) / _DEBIAN).rename(libraries)
        _run(check, variables)
    except ValueError as error:
        raise ValueError(
            f"{failed}. {lock.path} names libraries that help, but: {error}. Its first lines say "
            "what the simulator needs; install that on this system and repeat"
        ) from error
    return variables


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _fitting_python(lock: Lock) -> str:
    tried = [sys.executable, *filter(None, map(shutil.which, _PYTHONS))]
    for python in tried:
        done = subprocess.run(
            [python, "-c", "import platform, ensurepip; print(platform.python_version())"],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and lock.requires_python.contains(done.stdout.strip()):
            return python
    raise ValueError(
        f"{lock.path.name} needs Python {lock.requires_python}, which is not among {tried}; "
        "install one of these, or uv, which fetches it"
    )


def _described(python: Path, lock: Lock | None = None) -> dict[str, typing.Any]:
    version, packages = json.loads(_run([python, "-s", "-c", _LIST_PACKAGES]).splitlines()[-1])
    return {
        "cwd": None,
        "variables": {},
        "python_version": version,
        "lock_sha256": lock.digest if lock else None,
        "packages": [
            {"name": package, "version": number, "licence": licence}
            for package, number, licence in packages
        ],
    }


def _run(
    command: list[typing.Any],
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """What a command prints.

    Raises:
        ValueError: If it fails or is not there, with the end of what it said.
    """
    words = [str(word) for word in command]
    try:
        env = foreign_environment() | dict(variables or {})
        done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=cwd)
    except OSError as error:
        raise ValueError(f"{words[0]} does not run: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or "no message"
        error = ValueError(f"'{' '.join(words[:4])} …' failed: {' '.join(said.split())[-400:]}")
        error.add_note(said)
        raise error
    return done.stdout
