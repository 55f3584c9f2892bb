"""Rules that keep the structure: imports go one way, light modules stay light, and the page about
it is true."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import structure
from tests.repository.structure import LAYERS, ROOT, imports

LIGHT = (
    "rrf",
    "rrf.config",
    "rrf.lookup",
    "rrf.envs.vec_env",
    "rrf.runners.checkpoints.deployable",
    "rrf.lineage",
    "rrf.evaluation.gates.decision",
    "rrf.evaluation.gates.gate",
    "rrf.client",
    "rrf.serving.configs",
    "rrf.presets",
    "rrf.cli",
)
TORCH_FREE = (
    "rrf/data",
    "rrf/mlflow_store",
    "rrf/registry",
    "rrf/tracking",
    "rrf/client",
    "rrf/runners/checkpoints/deployable.py",
    "rrf/evaluation/gates/decision.py",
    "rrf/evaluation/gates/gate.py",
)
ROOMS = ("mlflow_store", "registry", "tracking")
HEAVY = (
    "torch",
    "mlflow",
    "great_expectations",
    "transformers",
    "prefect",
    "dvc",
    "metaworld",
    "warp",
    "lerobot",
)


def test_every_module_of_rrf_belongs_to_a_layer():
    names = {
        p.stem if p.is_file() else p.name
        for p in (ROOT / "rrf").iterdir()
        if not p.name.startswith("_") and (p.is_dir() or p.suffix == ".py")
    }
    missing = sorted(names - set(LAYERS))
    assert not missing, f"give these a place in tests/repository/structure.py: {missing}"


def test_imports_go_only_to_the_same_or_an_earlier_layer():
    wrong = []
    for place, layer in enumerate(LAYERS):
        for path in structure.files(layer):
            for module in imports(path):
                other = structure.layer_of(module)
                if other and LAYERS.index(other) > place:
                    wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("layer", structure.ROOMS)
def test_rooms_import_only_the_same_or_an_earlier_room_of_their_layer(layer):
    """Inside functions and under TYPE_CHECKING too."""
    places, wrong = {room: n for n, room in enumerate(structure.ROOMS[layer], start=1)}, []
    for path in structure.files(layer):
        inside = path.relative_to(structure.folder(layer)).parts
        place = places.get(inside[0], 0) if len(inside) > 1 else 0
        wrong += [
            f"{path.relative_to(ROOT)} imports {module}"
            for module in imports(path)
            if structure.layer_of(module) == layer and structure.room_of(layer, module) > place
        ]
    assert wrong == []


def test_the_order_of_rooms_is_that_of_their_place():
    pages, reader = "rrf.data.pages.card", "rrf.data.dataset.reader"
    assert structure.room_of("data", pages) > structure.room_of("data", reader) > 0
    assert [structure.room_of("data", one) for one in ("rrf.data", "rrf.data.schema")] == [0, 0]


@pytest.mark.parametrize("layer", structure.ROOMS)
def test_every_room_of_an_ordered_layer_has_its_place(layer):
    rooms = {p.parent.name for p in structure.files(layer)} - {layer}
    assert rooms == set(structure.ROOMS[layer]), (
        "give it a place in tests/repository/structure.py: ROOMS"
    )


@pytest.mark.parametrize("block", structure.BLOCKS)
def test_the_page_about_the_architecture_is_drawn_from_the_code(block):
    drawn, found = structure.BLOCKS[block](), structure.written(block)
    assert found == drawn, "run: python -m tests.repository.structure"


def test_every_layer_and_room_says_what_it_holds():
    silent = [layer for layer in LAYERS if not structure.purpose(structure.folder(layer))]
    rooms = {p.parent for layer in LAYERS for p in structure.files(layer)} - {ROOT / "rrf"}
    silent += [str(room.relative_to(ROOT)) for room in rooms if not structure.purpose(room)]
    assert silent == []


def test_no_modules_import_each_other_not_even_inside_functions_or_for_annotations():
    modules = {_module(path): path for path in (ROOT / "rrf").rglob("*.py")}
    graph = {name: set(_imported_modules(path)) & set(modules) for name, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imported_modules(path: Path):
    for node in structure.import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                place = ROOT / submodule.replace(".", "/")
                is_module = place.with_suffix(".py").is_file() or place.is_dir()
                yield submodule if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_rrf_never_imports_the_workflow_tools():
    """But for its plugin of Prefect, which Prefect imports."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted((ROOT / "rrf").rglob("*.py"))
        if path.name != "prefect_plugin.py"
        for module in imports(path)
        if module.split(".")[0] in ("prefect", "dvc", "flows", "infra")
    ]
    assert wrong == []


def test_data_registry_and_tracking_never_import_torch():
    files = [
        f
        for name in TORCH_FREE
        for f in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    wrong = [
        str(f.relative_to(ROOT))
        for f in files
        for module in imports(f)
        if module.split(".")[0] == "torch"
    ]
    assert wrong == []


def _light_modules() -> list[str]:
    files = [
        *(ROOT / "rrf/data").rglob("*.py"),
        *(p for room in ROOMS for p in (ROOT / "rrf" / room).glob("*.py")),
    ]
    return [*LIGHT, *sorted(_module(path) for path in files)]


@pytest.mark.parametrize("group", range(2))
def test_light_modules_load_no_heavy_package(group):
    modules = _light_modules()[group::2]
    script = f"""
import importlib, sys
bad = []
for name in {modules!r}:
    importlib.import_module(name)
    loaded = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]
    if loaded:
        bad.append((name, loaded)); break
print(bad)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.strip() == "[]"
