"""The form of a published number, and its file `docs/benchmarks/<script>.json`."""

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rrf import atomic

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "benchmarks"
_FIELDS = (
    *("id", "value", "unit", "peer", "peer_value", "ratio"),
    *("command", "commit", "machine", "seeds", "date"),
)


def number(
    id: str,
    value: float,
    unit: str,
    *,
    command: str,
    peer: str | None = None,
    peer_value: float | None = None,
    ratio: float | None = None,
    seeds: Sequence[int] = (),
) -> dict:
    """One measured number in the published form.

    `ratio` compares ours with the peer; a value above 1 means that ours is better.
    """
    return {
        "id": id,
        "value": float(f"{value:.4g}"),
        "unit": unit,
        "peer": peer,
        "peer_value": None if peer_value is None else float(f"{peer_value:.4g}"),
        "ratio": None if ratio is None else float(f"{ratio:.3g}"),
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "seeds": list(seeds),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def save(script: str, numbers: Sequence[dict]) -> Path:
    """Merge `numbers` into `docs/benchmarks/<script>.json` by id; other ids are kept."""
    path = RESULTS / f"{script}.json"
    kept = {row["id"]: row for row in json.loads(path.read_text())} if path.is_file() else {}
    kept |= {row["id"]: row for row in numbers}
    atomic.write_json(path, list(kept.values()))
    return path


def line(row: dict) -> str:
    """A number in a line, to print: beside its peer, and with the facts that only this row has."""
    text = f"{row['id']}: {row['value']:g} {row['unit']}"
    if row["peer_value"] is not None:
        text += f" ({row['peer']}: {row['peer_value']:g})"
    if row["ratio"] is not None:
        text += f", ratio {row['ratio']:g}"
    facts = {name: value for name, value in row.items() if name not in _FIELDS}
    return f"{text} {facts}" if facts else text


def machine() -> str:
    """Processor, number of cores that this process may use, and operating system, in one line."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cores = len(os.sched_getaffinity(0))
    return f"{names[0] if names else platform.machine()}, {cores} cores, {platform.system()}"


def commit() -> str:
    """The commit that is measured, with a "+" if files other than the results differ from it."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)docs/benchmarks")
    return (head or "none") + ("+" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
