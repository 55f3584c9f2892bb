"""`rrf doctor`: what this machine has, what is missing, and the command that fixes it."""

import importlib.metadata
import os
import shutil
import socket
import sys
import urllib.request

from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from rrf import service_records, workspace
from rrf.extras import install_command

_PACKAGES = (
    "prefect", "dvc", "torch", "transformers", "peft", "accelerate", "gymnasium", "mujoco",
    "mujoco-warp",
    "metaworld", "lerobot", "mlflow", "s3fs", "great-expectations",
)  # fmt: skip
_OK, _WARN, _BAD = "[green]ok[/green]", "[yellow]note[/yellow]", "[red]problem[/red]"


def report() -> bool:
    """Print the table. Returns whether it shows no problem."""
    store = _store()
    rows = [
        _python(), _packages(), _cores(), _workspace(), _disk(), *_renderers(), _gpu(), _data(),
        store,
        *(ledgers() if store[0] == _OK else []),
        server("Prefect server", "prefect", "/api/health"),
        server("MLflow server", "mlflow", "/health"),
    ]  # fmt: skip
    table = Table(title="rrf doctor", show_lines=False)
    for column in ("", "what", "found"):
        table.add_column(column)
    for status, what, found in rows:
        table.add_row(status, what, found)
    Console().print(table)
    return all(status != _BAD for status, _, _ in rows)


def _python() -> tuple[str, str, str]:
    found = ".".join(map(str, sys.version_info[:3]))
    needed = importlib.metadata.metadata("rrf")["Requires-Python"]
    good = SpecifierSet(needed).contains(found)
    return (_OK if good else _BAD), "Python", found if good else f"{found}; {needed} is needed"


def _packages() -> tuple[str, str, str]:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return _BAD, "packages", f"missing {', '.join(missing)}; run: {install_command()}"
    return _OK, "packages", ", ".join(found)


def _cores() -> tuple[str, str, str]:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only: the cores we may use
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return _OK, "CPU cores", f"{cores}, load {os.getloadavg()[0]:.1f}"


def _disk() -> tuple[str, str, str]:
    home = workspace.home()
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free_gb = shutil.disk_usage(there).free / 1e9
    return (_OK if free_gb > 2 else _BAD), "free disk", f"{free_gb:.0f} GB"


def _renderers() -> list[tuple[str, str, str]]:
    from rrf.envs.rendering.renderers import probe_renderers

    found = probe_renderers()
    rows = []
    for name, answer in found.items():
        status = _OK if answer == "ok" else (_BAD if name == "warp" else _WARN)
        rows.append((status, f"renderer {name}", answer))
    return rows


def _gpu() -> tuple[str, str, str]:
    import torch

    if torch.cuda.is_available():
        return (
            _OK,
            "GPU",
            ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())),
        )
    return _WARN, "GPU", "none; everything in the demo runs on the CPU"


def _workspace() -> tuple[str, str, str]:
    if root := workspace.root():
        return _OK, "workspace", str(root)
    return _WARN, "workspace", f"none, so {workspace.home()} is used; make one: rrf init FOLDER"


def _data() -> tuple[str, str, str]:
    raw = workspace.home() / "datasets" / "raw"
    if not raw.is_dir() or not any(raw.rglob("*.hdf5")):
        how = "; run: dvc pull datasets.dvc" if (workspace.home() / "datasets.dvc").exists() else ""
        return _WARN, "raw data", f"not here yet{how}"
    ready = sorted(
        p.parent.parent.name for p in (workspace.home() / "datasets").glob("*/meta/info.json")
    )
    return (
        _OK,
        "data",
        f"raw recordings and datasets: {', '.join(ready) or 'none yet; run: dvc repro'}",
    )


def _store() -> tuple[str, str, str]:
    from rrf.mlflow_store import store

    uri = workspace.tracking_uri()
    if not store.is_made(uri):
        return _OK, "MLflow store", f"{uri}, which the first training makes"
    try:
        store.connect()
    except OSError as error:
        return _BAD, "MLflow store", str(error)
    return _OK, "MLflow store", workspace.shown_uri(uri)


def ledgers() -> list[tuple[str, str, str]]:
    """A row for each model whose promotion ledger is damaged or whose aliases differ from it, or
    one row if there is none. Nothing is changed.
    """
    from rrf.mlflow_store import store
    from rrf.registry import listing

    if not store.is_made(workspace.tracking_uri()):
        return []
    if problems := listing.problems():
        return [(_BAD, "model", problem) for problem in problems]
    names = ", ".join(listing.models())
    return [(_OK, "models", f"{names}; aliases and ledgers agree" if names else "none yet")]


def server(what: str, name: str, path: str) -> tuple[str, str, str]:
    """The row about a server of `rrf services up`: whether it answers at `path`, and where."""
    port = service_records.port(name)
    with socket.socket() as probe:
        probe.settimeout(0.5)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return _WARN, what, f"not running on port {port}; run: rrf services up"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return _OK, what, f"http://127.0.0.1:{port} answers {answer.status}"
    except OSError as error:
        return _WARN, what, f"port {port} is used by something else ({error}); choose another"
