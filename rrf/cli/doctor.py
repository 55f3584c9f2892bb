"""`rrf doctor`: what this machine has, what is missing, and the command that fixes it.

With --preset, what a policy needs.
"""

import importlib.metadata
import os
import shutil
import socket
import sys
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import typer
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from rrf import service_guard, service_records, workspace
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
    """The row about a server, of `rrf services up` or of the environment: whether it answers at
    `path`, and where.
    """
    from rrf.registry import links

    address = {"prefect": links.prefect_pages, "mlflow": links.mlflow_pages}[name]()
    port = service_records.port(name)
    is_own = address == f"http://127.0.0.1:{port}"
    if is_own:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return _WARN, what, f"not running on port {port}; run: rrf services up"
    variable = {
        "prefect": service_guard.PREFECT_CERTIFICATES,
        "mlflow": service_guard.MLFLOW_CERTIFICATES,
    }[name]
    try:
        known = service_guard.certificates(variable)
        login = {} if is_own else service_guard.authorization(name)
        question = urllib.request.Request(f"{address}{path}", headers=login)
        with urllib.request.urlopen(question, timeout=5, context=known) as answer:
            return _OK, what, f"{address} answers {answer.status}"
    except service_guard.NO_ANSWER as error:
        if is_own:
            return _WARN, what, f"port {port} is used by something else ({error}); choose another"
        of = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI"}[name]
        hint = service_guard.hint(str(error), variable)
        return _WARN, what, f"{address} of {of} does not answer ({error}{hint and f'; {hint}'})"


def report_policy(preset: str, overrides: Sequence[str], batch_size: int | None) -> None:
    """Print which files of a preset are here, parameters, operations and memory of its policy, and
    what fits.

    Raises:
        ValueError: For a preset whose policy does not learn from recordings.
    """
    from rrf.presets import resolve
    from rrf.runners.footprint import completed, footprint, tokenizer_is_here
    from rrf.runners.supervised.configs import SupervisedRunnerCfg

    cfg = resolve(preset, overrides)
    if not isinstance(cfg, SupervisedRunnerCfg):
        raise ValueError(f"{preset} trains no policy on recordings; choose one that does")
    needs_model = False
    for what, problem in _files(cfg):
        typer.echo(f"missing here: {what}: {problem}" if problem else f"here: {what}")
        needs_model |= bool(problem) and what.startswith("policy.options.")
    if needs_model:
        typer.echo("what it needs cannot be computed without that model")
        return
    cfg, instructions = _with_dataset(cfg)
    policy = completed(cfg.policy)
    needs = footprint(cfg, instructions=instructions)
    counts = needs.parameters()
    total = sum(counts.values())
    parts = ", ".join(f"{part} {count / 1e6:,.1f} M" for part, count in counts.items())
    typer.echo(f"{preset}: {total / 1e9:.3f} billion parameters ({parts})")
    backbone = getattr(policy, "backbone", None)
    if backbone is None or not instructions:
        counted = "assumed"
    elif tokenizer_is_here(backbone.tokenizer):
        counted = f"counted, the longest of {len(instructions)} instructions"
    else:
        counted = "assumed, because its tokenizer is not here"
    (height, width), views = policy.image_size, policy.past.views(policy.cameras)
    tokens = ", ".join(f"{part} {num}" for part, num in needs.tokens().items())
    typer.echo(
        f"a sample is {len(views)} image(s) of {height} x {width} px, a state of "
        f"{policy.state_dim}, an action of {policy.action_dim} and {needs.prompt_tokens} tokens of "
        f"prompt ({counted}; what the dataset decides is "
        f"{'its own' if instructions else 'assumed'}; tokens: {tokens})"
    )
    most = getattr(backbone, "max_tokens", needs.prompt_tokens)
    if needs.prompt_tokens > most:
        typer.echo(
            f"such a prompt is refused: policy.backbone.max_tokens is {most}; set "
            f"policy.backbone.max_tokens={needs.prompt_tokens}"
        )
    forward, step = (needs.flops(training) / 1e12 for training in (False, True))
    typer.echo(
        f"operations, estimated as 2 x parameters x tokens: {forward:.3g} TFLOP per chunk of "
        f"actions, {step:.3g} TFLOP per sample trained in full"
    )
    _memory(cfg, needs, batch_size or cfg.batch_size, instructions)


def _files(cfg) -> list[tuple[str, str | None]]:
    """What a run reads, and what is wrong with it here: the message of a training, or None."""
    from rrf import workspace
    from rrf.data.dataset.layout import read_info
    from rrf.networks.vlm.catalogue import located
    from rrf.networks.vlm.tokenizer import FILE
    from rrf.networks.vlm.weights import weight_files
    from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
    from rrf.policies.vla.lerobot.directories import check_local
    from rrf.runners.checkpoints import checkpoint

    def tokenizer(name: str) -> None:
        if not (file := located(name) / FILE).is_file():
            raise ValueError(f"{file} is missing")

    policy, backbone = cfg.policy, getattr(cfg.policy, "backbone", None)
    wanted: list[tuple[str, str | None, Callable[[str], object]]] = [
        ("dataset", name, lambda name: read_info(workspace.dataset(name))) for name in cfg.datasets
    ]
    wanted += [
        ("pretrained", cfg.pretrained, weight_files),
        ("init_from", cfg.init_from, checkpoint.find),
    ]
    if backbone is not None:
        wanted += [
            ("policy.backbone.weights", backbone.weights, weight_files),
            ("policy.backbone.tokenizer.files", backbone.tokenizer.files, tokenizer),
        ]
    if isinstance(policy, LerobotPolicyCfg):
        from rrf.policies.vla.lerobot.build import named

        for option in policy.directories:
            name = f"options.{option}"
            wanted.append((f"policy.{name}", named(policy, option), _checked(check_local, name)))
    return [(f"{what} {name}", _problem(check, name)) for what, name, check in wanted if name]


def _checked(check: Callable, setting: str) -> Callable[[str], object]:
    return lambda folder: check(setting, folder)


def _problem(check: Callable[[str], object], name: str) -> str | None:
    try:
        check(name)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _with_dataset(cfg) -> tuple[Any, list[str]]:
    """The config with what its dataset decides, and the instructions of it; none, if it is not
    here."""
    from rrf import workspace
    from rrf.data.dataset.layout import read_info, schema_of
    from rrf.data.dataset.parquet import read_tasks

    if cfg.robots or not cfg.datasets:
        return cfg, []
    try:
        roots = [workspace.dataset(name) for name in cfg.datasets]
        schema = schema_of(read_info(roots[0]))
        instructions = [text for root in roots for text in read_tasks(root)]
    except (ValueError, OSError):
        return cfg, []
    return cfg.replace(policy=cfg.policy.fitted(schema)), cfg.instructions or instructions


def _memory(cfg, whole, batch_size: int, instructions: Sequence[str]) -> None:
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
        adapted = footprint(cfg, "lora", instructions).memory("lora")
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
