"""`rrf doctor --preset NAME`: what a policy needs, and whether this machine has it."""

import os
from collections.abc import Sequence

import typer

from rrf.cli.tables import print_table


def report(preset: str, overrides: Sequence[str], batch_size: int | None) -> None:
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

    found = [("CPU", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found.append((f"GPU {index} {facts.name}", facts.total_memory))
    return found
