"""`rrf doctor`: what this machine has, what is missing, and the command that fixes it.

With --preset, what a policy needs.
"""

import importlib.metadata
import os
import shutil
import socket
import sys
import urllib.request
from collections.abc import Sequence

import typer
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from rrf import service_records, workspace
from rrf.cli.tables import print_table
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
    for status, what, state in rows:
        table.add_row(status, what, state)
    Console().print(table)
    return all(status != _BAD for status, _, _ in rows)


def _python() -> tuple[str, str, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    needed = importlib.metadata.metadata("rrf")["Requires-Python"]
    good = SpecifierSet(needed).contains(version)
    return (_OK if good else _BAD), "Python", version if good else f"{version}; {needed} is needed"


def _packages() -> tuple[str, str, str]:
    installed, missing = [], []
    for name in _PACKAGES:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return _BAD, "packages", f"missing {', '.join(missing)}; run: {install_command()}"
    return _OK, "packages", ", ".join(installed)


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

    renderers = probe_renderers()
    rows = []
    for name, answer in renderers.items():
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


def report_policy(preset: str, overrides: Sequence[str], batch_size: int | None) -> None:
    """Print parameters, operations and memory of the policy of a preset, and what fits.

    Raises:
        ValueError: For a preset whose policy does not learn from recordings.
    """
    from rrf.presets import resolve
    from rrf.runners.footprint import PROMPT_TOKENS, completed, footprint
    from rrf.runners.supervised.configs import SupervisedRunnerCfg

    cfg = resolve(preset, overrides)
    if not isinstance(cfg, SupervisedRunnerCfg):
        raise ValueError(f"{preset} trains no policy on recordings; choose one that does")
    policy = completed(cfg.policy)
    needs = footprint(cfg)
    counts = needs.parameters()
    total = sum(counts.values())
    parts = ", ".join(f"{part} {count / 1e6:,.1f} M" for part, count in counts.items())
    typer.echo(f"{preset}: {total / 1e9:.3f} billion parameters ({parts})")
    (height, width), views = policy.image_size, policy.past.views(policy.cameras)
    tokens = ", ".join(f"{part} {num}" for part, num in needs.tokens().items())
    typer.echo(
        f"a sample is {len(views)} image(s) of {height} x {width} px, a state of "
        f"{policy.state_dim}, an action of {policy.action_dim} and {PROMPT_TOKENS} tokens of "
        f"prompt (assumed where the dataset decides; tokens: {tokens})"
    )
    forward, step = (needs.flops(training) / 1e12 for training in (False, True))
    typer.echo(
        f"operations, estimated as 2 x parameters x tokens: {forward:.3g} TFLOP per chunk of "
        f"actions, {step:.3g} TFLOP per sample trained in full"
    )
    _memory(cfg, needs, batch_size or cfg.batch_size)


def _memory(cfg, whole, batch_size: int) -> None:
    from rich.table import Table

    from rrf.policies.vla.vlm_configs import VLMPolicyCfg
    from rrf.runners.footprint import footprint
    from rrf.runners.supervised.out_of_memory import USABLE

    devices = _devices()
    table = Table(box=None, header_style="bold", title="memory in GB, computed, not measured")
    names = ("", "weights", "gradients", "optimizer", "activations", "together")
    for column in (*names, *(f"{name}, {size / 1e9:.0f} GB" for name, size in devices)):
        table.add_column(column)
    has_backbone = isinstance(cfg.policy, VLMPolicyCfg)
    rows = [("inference, 1 sample", whole.memory("inference"), 1)]
    if has_backbone:
        adapted = footprint(cfg, "lora").memory("lora")
        rows.append((f"frozen backbone, {batch_size}", whole.memory("frozen"), batch_size))
        rows.append((f"LoRA, {batch_size}", adapted, batch_size))
    rows.append((f"full, {batch_size}", whole.memory("full"), batch_size))
    for what, memory, batch in rows:
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations * batch)
        fits = [_fits(memory, batch, USABLE * size) for _, size in devices]
        numbers = (f"{value / 1e9:.2f}" for value in (*parts, memory.total(batch)))
        table.add_row(what, *numbers, *fits)
    print_table(table)
    typer.echo(
        f"{1 - USABLE:.0%} of a device is left to libraries and fragmentation; num_microbatches=N "
        f"computes {batch_size} samples in N parts"
    )


def _fits(memory, batch: int, available: float) -> str:
    most = memory.largest_batch(available)
    if most >= batch:
        return f"[green]fits[/green], up to {most:,}"
    if most:
        return f"[yellow]{most:,} at once[/yellow]: num_microbatches={-(-batch // most)}"
    return f"[red]no[/red], lacks {(memory.total(1) - available) / 1e9:.1f} GB"


def _devices() -> list[tuple[str, int]]:
    import torch

    memories = [("CPU", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        memories.append((f"GPU {index} {facts.name}", facts.total_memory))
    return memories
