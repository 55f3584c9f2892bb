"""Modules that other packages call private are imported in few places, each of which says what to
do when they move, and hold to what is used of them."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("rrf", "flows", "infra", "benchmarks")
OURS = (*ROOMS, "tests", "rrf_child", "__future__", "_typeshed")
GUARDED = {
    ("rrf/envs/rendering/gl_shading.py", "mujoco_warp._src"),
    ("rrf/orchestra/ray_cluster.py", "ray._private.services"),
}
"""Each is imported inside `try`, with a message for ImportError."""


def private(name: str) -> bool:
    parts = name.split(".")
    return parts[0] not in OURS and any(part.startswith("_") for part in parts)


def imported(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every module, and every name with an underscore, that is imported from somebody else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names if private(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if private(name):
                    yield node, node.module if private(node.module) else name


def guarded(tree: ast.AST) -> set[ast.AST]:
    """What stands in a `try` that catches ImportError."""
    return {
        node
        for attempt in ast.walk(tree)
        if isinstance(attempt, ast.Try)
        and any("ImportError" in ast.unparse(h.type) for h in attempt.handlers if h.type)
        for statement in attempt.body
        for node in ast.walk(statement)
    }


def test_private_modules_are_imported_only_where_they_may_move():
    found = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        where, safe = str(path.relative_to(ROOT)), guarded(tree)
        for node, name in imported(tree):
            found.add((where, name))
            assert node in safe, f"{where} imports {name} outside a try with ImportError"
    assert found == GUARDED


def test_what_is_used_of_mujoco_warp_is_there():
    rays = pytest.importorskip("mujoco_warp._src.ray")
    box = ["pos", "mat", "size", "pnt", "vec"]
    shapes = ("box", "cylinder", "capsule", "plane", "ellipsoid")
    used = {f"ray_{shape}": box for shape in shapes} | {
        "ray_sphere": ["pos", "dist_sqr", "pnt", "vec"]
    }
    for name, parameters in used.items():
        assert list(getattr(rays, name).input_types) == parameters, name


def test_what_is_used_of_ray_is_there(monkeypatch):
    pytest.importorskip("ray")
    services = importlib.import_module("ray._private.services")
    address_of = services.canonicalize_bootstrap_address_or_die
    assert next(iter(inspect.signature(address_of).parameters)) == "addr"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert address_of("auto") == "10.0.0.1:6379"
