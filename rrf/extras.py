"""Where rrf and other packages were installed from: the command for an extra, and a lock."""

import importlib.metadata
import json
from pathlib import Path


def install_command(extra: str = "") -> str:
    """The command that installs rrf with an extra, from where it came; without one, what rrf needs.

    That is a checkout, the file or address in direct_url.json, which installers write (PEP 610), or
    else an index.
    """
    checkout, name = Path(__file__).resolve().parents[1], f"[{extra}]" if extra else ""
    try:
        package = importlib.metadata.distribution("rrf")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        package = None
    # In the checkout itself the first that is found is the one that setuptools left there.
    if package is None or _is_editable(package) or Path(str(package.locate_file(""))) == checkout:
        place = "." if Path.cwd() == checkout else checkout
        return f"uv pip install -e '{place}{name}'"
    return f"pip install 'rrf{name}{_from(package)}'"


def lock() -> str:
    """The packages of this environment as pins that pip and uv install, one a line."""
    pins = {}
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        if name and name not in pins:  # the first is the one that is imported
            if _is_editable(package):
                place = _origin(package)["url"].removeprefix("file://")
                pins[name] = f"-e {place}"
            else:
                pins[name] = f"{name}{_from(package) or f'=={package.version}'}"
    return "\n".join(pins[name] for name in sorted(pins, key=str.lower)) + "\n"


def _is_editable(package: importlib.metadata.Distribution) -> bool:
    return bool(_origin(package).get("dir_info", {}).get("editable"))


def _from(package: importlib.metadata.Distribution) -> str:
    """ " @ ADDRESS", as in a requirement; empty if it came from an index."""
    origin = _origin(package)
    address = origin.get("url", "")
    if vcs := origin.get("vcs_info"):
        address = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
    return address and f" @ {address}"


def _origin(package: importlib.metadata.Distribution) -> dict:
    """What the installer wrote about where a package came from; {} if it came from an index."""
    return json.loads(package.read_text("direct_url.json") or "{}")
