"""Names of the config fields of the installed lerobot, read from its source.

lerobot's import takes ten seconds and loads torch, so a config that names a wrong field could only
be refused late. Its sources are parsed instead; nothing of it runs.
"""

import ast
import functools
import importlib.util
from pathlib import Path

from rrf.extras import install_command

_BASE = "configs/policies.py"


@functools.cache
def config_fields(kind: str) -> frozenset[str]:
    """The fields that lerobot's config of a kind of policy declares itself, and `n_obs_steps`.

    Raises:
        ValueError: If lerobot is not installed or has no such policy.
    """
    declared = _fields(f"policies/{kind}/configuration_{kind}.py")
    return (declared - base_fields()) | {"n_obs_steps"}


@functools.cache
def base_fields() -> frozenset[str]:
    """The fields that all of lerobot's configs have: inputs, outputs, device, hub."""
    return _fields(_BASE)


def _fields(file: str) -> frozenset[str]:
    """The annotated names in the classes of one of lerobot's files."""
    path = _root() / file
    if not path.is_file():
        raise ValueError(
            f"the installed lerobot has no {file}; install the one that rrf needs: "
            f"{install_command()}"
        )
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        line.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    )


def _root() -> Path:
    spec = importlib.util.find_spec("lerobot")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"lerobot is not installed; type: {install_command()}")
    return Path(next(iter(spec.submodule_search_locations)))
