"""How to install rrf's extras, the packages that it can do without, where it is installed."""

import importlib.metadata
import json
from pathlib import Path


def install_command(extra: str = "") -> str:
    """The command that installs rrf with an extra, from where it came; without one, what rrf needs.

    That is a checkout, the file or address in direct_url.json, which installers write (PEP 610), or
    else an index.
    """
    origin, checkout = _origin(), Path(__file__).resolve().parents[1]
    name = f"[{extra}]" if extra else ""
    if origin.get("dir_info", {}).get("editable"):
        place = "." if Path.cwd() == checkout else checkout
        return f"uv pip install -e '{place}{name}'"
    address = origin.get("url", "")
    if vcs := origin.get("vcs_info"):
        address = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
    return f"pip install 'rrf{name}{address and f' @ {address}'}'"


def _origin() -> dict:
    """What the installer wrote about where rrf came from; {} if it came from an index."""
    try:
        text = importlib.metadata.distribution("rrf").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        text = '{"dir_info": {"editable": true}}'
    return json.loads(text or "{}")
