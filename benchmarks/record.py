"""The form of a published number, its file `docs/benchmarks/<script>.json`, and the command line of
a script that measures some.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rrf import atomic
from rrf.config import did_you_mean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "benchmarks"


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


def measure_named(
    script: str, doc: str | None, benchmarks: Mapping[str, Callable[[], dict | list[dict]]]
) -> None:
    """Measure the numbers that the command line names, by default all of them, and save them.

    Args:
        script: The name of the file of results.
        doc: The description for `--help`.
        benchmarks: What measures one or several numbers, by the word that asks for it.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help=", ".join(benchmarks))
    parser.add_argument("--dry-run", action="store_true", help="print only, write nothing")
    args = parser.parse_args()
    for id in args.ids:
        if id not in benchmarks:
            parser.error(f"no benchmark '{id}'{did_you_mean(id, benchmarks)}")
    for id in args.ids or benchmarks:
        found = benchmarks[id]()
        rows = [found] if isinstance(found, dict) else found
        for row in rows:
            peer = f" ({row['peer']}: {row['peer_value']:g})" if row["peer"] else ""
            print(f"{row['id']}: {row['value']:g} {row['unit']}{peer}", flush=True)
        if not args.dry_run:
            save(script, rows)


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
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "--", ".", ":(exclude)docs/benchmarks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return (found.stdout.strip() or "none") + ("+" if dirty.stdout.strip() else "")
