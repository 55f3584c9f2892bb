"""The structure of the code as two blocks of docs/architecture.md: its layers, each with what it
imports, and the rooms of every layer. What a layer or room holds is the first paragraph of its
docstring.

`python -m tests.repository.structure` writes both anew.
"""

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
TEMPLATE = ROOT / "infra/workspace"
GROUND = (
    "formats", "config", "atomic", "workspace", "code_digest", "precision", "compiled", "processes",
    "ctrl_c", "outcome", "run_directory", "service_records", "service_guard", "prefect_plugin",
    "extras", "lookup", "lineage", "pages", "notifications",
)  # fmt: skip
"""Modules that every layer may import; the table leaves them out of its imports."""
LAYERS = (
    *GROUND, "data", "envs", "networks", "policies", "storage", "algorithms", "runners",
    "orchestra", "client", "hierarchy", "evaluation", "identity", "mlflow_store", "backup",
    "registry", "tracking", "serving", "monitoring", "presets", "cli", "flows", "infra",
)  # fmt: skip
"""From the bottom up: each imports only from those before it."""
ROOMS = {"data": ("dataset", "formats", "conversion", "validation", "pages", "transport")}
"""Layers whose rooms are in an order too, from the bottom up. The layer's own modules are below."""
_TOP = ("flows", "infra")  # beside rrf/, not in it


_PARENTS = ("rrf", *(f"rrf.{layer}" for layer in ROOMS))  # packages of which rooms are imported


def folder(layer: str) -> Path:
    """The package or module of a layer."""
    base = ROOT if layer in _TOP else ROOT / "rrf"
    return base / layer if (base / layer).is_dir() else base / f"{layer}.py"


def files(layer: str) -> list[Path]:
    """All Python files of a layer, without what `rrf init` copies."""
    where = folder(layer)
    if not where.is_dir():
        return [where]
    return sorted(p for p in where.rglob("*.py") if not p.is_relative_to(TEMPLATE))


@functools.cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All of a file: at the top, inside functions and under TYPE_CHECKING."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports."""
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            if node.module in _PARENTS:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer_of(module: str) -> str | None:
    """The layer that a dotted name belongs to; None for other packages and `rrf` itself."""
    first, _, rest = module.partition(".")
    name = rest.partition(".")[0] if first == "rrf" else first
    return name if name in LAYERS and (first == "rrf" or first in _TOP) else None


def room_of(layer: str, module: str) -> int:
    """The place of a dotted name of an ordered layer in its order: 0 for the layer's own modules,
    1 for the first room.
    """
    name = module.removeprefix(f"rrf.{layer}").removeprefix(".").partition(".")[0]
    rooms = ROOMS[layer]
    return rooms.index(name) + 1 if name in rooms else 0


def imported_layers(layer: str) -> set[str]:
    """The other layers that a layer imports from."""
    found = {layer_of(module) for path in files(layer) for module in imports(path)}
    return {name for name in found if name} - {layer}


def purpose(path: Path) -> str:
    """The first paragraph of the docstring of a module or package, on one line."""
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def layer_table() -> str:
    """The table of layers, in markdown."""
    rows = ["| layer | imports from | holds |", "|---|---|---|"]
    for layer in LAYERS:
        found = imported_layers(layer)
        names = ", ".join(name for name in LAYERS if name in found and name not in GROUND)
        rows.append(f"| `{layer}` | {names} | {purpose(folder(layer))} |")
    return "\n".join(rows)


def room_list() -> str:
    """The rooms of every layer that has some, in markdown."""
    rooms = [
        path.parent
        for layer in LAYERS
        for path in files(layer)
        if path.name == "__init__.py" and path.parent != folder(layer)
    ]
    return "\n".join(f"- `{room.relative_to(ROOT)}/`: {purpose(room)}" for room in rooms)


BLOCKS = {"layers": layer_table, "rooms": room_list}


def written(name: str) -> str:
    """What stands in a block of the page.

    Raises:
        ValueError: If the page has no such block.
    """
    return _match(name, PAGE.read_text()).group(2)


def _match(name: str, text: str) -> re.Match:
    found = re.search(rf"(<!-- {name}: .*? -->\n)(.*?)(\n<!-- /{name} -->)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{PAGE} has no block '{name}'")
    return found


def main() -> None:
    """Write both blocks anew."""
    text = PAGE.read_text()
    for name, draw in BLOCKS.items():
        found = _match(name, text)
        text = text[: found.start(2)] + draw() + text[found.end(2) :]
    PAGE.write_text(text)
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
