"""The pages of the site that are made from the code: a hook of MkDocs, see `mkdocs.yml`.

`reference/cli.md` is what `rrf --help` knows, `reference/presets.md` and
`reference/configuration.md` list the registries and `configs/`, and `reference/api/` holds a page
per package, which mkdocstrings fills with the docstrings.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
API = "reference/api"
_LEFT_OUT = ("rrf.__main__", "rrf.cli.__main__")  # entry points


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API pages to the navigation, below what mkdocs.yml lists there."""
    reference = next(entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    pages = [{package: _api_path(package)} for package in packages()]
    reference.append({"Python API": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages themselves."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """Path below docs/ -> markdown, of every generated page."""
    lists = {
        "reference/cli.md": cli_page(),
        "reference/presets.md": presets_page(),
        "reference/configuration.md": configuration_page(),
    }
    return lists | {_api_path(package): api_page(package) for package in packages()}


def packages() -> list[str]:
    """The dotted names of the packages that get a page, each before those in it."""
    found = pkgutil.walk_packages([str(ROOT / "rrf")], "rrf.", onerror=lambda name: None)
    names = [module.name for module in found if module.ispkg]
    return ["rrf", *(name for name in sorted(names) if name not in _LEFT_OUT), "flows"]


def modules(package: str) -> list[str]:
    """The public modules that lie directly in a package."""
    paths = sorted(ROOT.joinpath(*package.split(".")).glob("*.py"))
    names = [f"{package}.{path.stem}" for path in paths if not path.stem.startswith("_")]
    return [name for name in names if name not in _LEFT_OUT]


def api_page(package: str) -> str:
    """A page of mkdocstrings' directives."""
    below = [name for name in packages() if name.rpartition(".")[0] == package]
    inner = "".join(f"- [`{name}`]({name}.md)\n" for name in below)
    contents = f"Packages in it:\n\n{inner}\n" if below else ""
    own = f"::: {package}\n    options: {{show_root_heading: false, members: false}}\n\n"
    inner = "".join(f"::: {module}\n\n" for module in modules(package))
    return f"# `{package}`\n\n{own}{contents}{inner}"


def _api_path(package: str) -> str:
    return f"{API}/{package}.md"


def cli_page() -> str:
    """Every command with its arguments and options, as typer writes them down."""
    import typer
    from typer.cli import get_docs_for_click

    from rrf.cli import app

    command = typer.main.get_command(app)
    context = typer.Context(command)
    text = get_docs_for_click(obj=command, ctx=context, name="rrf", title="The `rrf` command")
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # cut short; they all follow
    return "\n".join(with_angles(line) for line in text.split("\n"))


def with_angles(line: str) -> str:
    """A line of markdown in which <key> outside of code is no tag."""
    parts = line.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def presets_page() -> str:
    """A table for each kind of training."""
    from rrf.presets import PRESETS, resolve

    rows: dict[type, list[str]] = {}
    for name in PRESETS:
        cfg = resolve(name)
        algorithm = _link(type(vars(cfg)["algorithm"]))
        rows.setdefault(type(cfg), []).append(f"| `{name}` | {_learns_from(cfg)} | {algorithm} |")
    parts = [
        "# Presets\n\nA preset is a complete training config with a name. `rrf show NAME` prints "
        "all of its fields, and `rrf train NAME path.to.field=value` trains it with that field "
        "changed. This page is made from the registry `rrf.presets.PRESETS`.\n"
    ]
    for kind, lines in rows.items():
        parts += [
            f"## {kind.__name__}\n\n{_first_line(kind)} All fields: {_link(kind)}.\n",
            "| preset | learns from | algorithm |\n|---|---|---|",
            *lines,
            "",
        ]
    return "\n".join(parts)


def configuration_page() -> str:
    """The files of `configs/`, what they can name, and the classes behind them."""
    from rrf.data.formats.sources import SOURCES
    from rrf.envs import ENVS
    from rrf.evaluation.protocols.files import PROTOCOLS

    parts = [
        "# Configuration\n\nEvery configuration is a typed dataclass. A YAML file names one and "
        "overrides values; a field that was never declared is an error, and the message names the "
        "closest one that exists. This page is made from `configs/` and from the code.\n",
        "## Files\n",
    ]
    for folder in sorted(path for path in (ROOT / "configs").iterdir() if path.is_dir()):
        names = ", ".join(f"`{path.stem}`" for path in sorted(folder.glob("*.yaml")))
        parts.append(f"- `configs/{folder.name}/`: {names}")
    parts.append("\n## Names that a file can use\n")
    registries = {"`source.format` of a dataset": SOURCES, "`env` of a protocol": ENVS}
    registries["kind of policy, which chooses the class of a protocol"] = PROTOCOLS
    for what, registry in registries.items():
        named = ", ".join(f"`{name}` ({_link(registry.get(name))})" for name in registry)
        parts.append(f"- {what}: {named}")
    parts.append("\n## Classes\n")
    parts += [f"- {_link(cls)}: {_first_line(cls)}" for cls in config_classes()]
    return "\n".join(parts) + "\n"


def config_classes() -> list[type]:
    """Every config class of the modules that hold configs, in the order of their names."""
    found = set()
    for package in packages():
        for module in modules(package) if package.startswith("rrf") else ():
            if module.rpartition(".")[2].endswith(("configs", "protocol", "gate", "schedule")):
                found.update(_configs_of(module))
    return sorted(found, key=lambda cls: cls.__name__)


def _configs_of(module: str) -> Iterable[type]:
    from rrf.config import Cfg

    for value in vars(importlib.import_module(module)).values():
        is_config = isinstance(value, type) and dataclasses.is_dataclass(value)
        if is_config and issubclass(value, Cfg) and value.__module__ == module:
            yield value


def _learns_from(cfg) -> str:
    env = getattr(cfg, "env", None)
    if env is None:
        return f"the dataset `{cfg.dataset}`"
    task = getattr(env, "task", None)
    return f"`{task}`" if task else f"{len(cfg.tasks)} tasks of `{env.simulator}`"


def _first_line(thing) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _link(thing) -> str:
    """A class as a link to its place in the API pages."""
    return f"[`{thing.__name__}`][{thing.__module__}.{thing.__qualname__}]"
