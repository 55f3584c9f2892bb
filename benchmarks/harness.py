'''One way to measure for all benchmarks. A benchmark is a module such as

    """Speed of cameras: `python -m benchmarks.cameras [ID ...]`."""

    def images_per_s(bench: Bench) -> dict:
        """Images per second, beside those of another renderer."""
        ours, peer = median_paces(draw, lambda: bench.pace("other"), repeats=bench.size(5, 1))
        return bench.paces("images_per_s", ours, PEERS["other"].name, peer)

    IDS = {"images_per_s": images_per_s}

    if __name__ == "__main__":
        harness.main("cameras", __doc__, IDS)

which writes `docs/benchmarks/cameras.json`, and `make bench-tables` turns that into a table. Times
come from `benchmarks.clock`, where ours and a peer take turns; `benchmarks.peers` has the peers; a
peer that runs in a process of its own prints JSON as its last line.
'''

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import record
from benchmarks.clock import Pace
from benchmarks.peers import PEERS, NotMeasuredError
from rrf import processes, workspace
from rrf.config import did_you_mean

_Size = TypeVar("_Size")


@dataclass(frozen=True)
class Bench:
    """How a measurement is called: the options of the command line."""

    python: str | None = None
    """An interpreter that has the peers' packages, instead of their own virtual environments."""
    is_small: bool = False
    """Only check that everything runs."""
    sources: Sequence[Path] = ()
    """Checkouts of peers that are no packages."""
    command: str = ""
    """The command that measures the same again."""
    saves: bool = True
    """Whether files are written."""
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    """The options that only this benchmark has."""

    def size(self, full: _Size, small: _Size) -> _Size:
        """Choose between the full size of a measurement and the small one."""
        return small if self.is_small else full

    def number(self, id: str, value: float, unit: str, **words: Any) -> dict:
        """A published number, with the words of `record.number`."""
        return record.number(id, value, unit, command=self.command, **words)

    def compare(
        self,
        id: str,
        value: float,
        unit: str,
        peer: str | None,
        peer_value: float | None,
        *,
        is_cost: bool = False,
        seeds: Sequence[int] = (),
    ) -> dict:
        """A number beside a peer's, with a ratio that is above 1 if ours is better.

        Args:
            id: The id of the number.
            value: Ours.
            unit: What both count.
            peer: The peer's name; None if it does not run here, as its value.
            peer_value: The peer's.
            is_cost: Whether less is better.
            seeds: The seeds of both.
        """
        words = {"peer": peer, "peer_value": peer_value, "seeds": seeds}
        if peer_value is not None:
            words["ratio"] = peer_value / value if is_cost else value / peer_value
        return self.number(id, value, unit, **words)

    def paces(
        self, id: str, ours: Pace, peer: str, peer_pace: Pace, seeds: Sequence[int] = (0,)
    ) -> dict:
        """The row that compares our pace with a peer's by wall seconds, and also by CPU-seconds."""
        row = self.compare(
            id, ours.steps_per_s, "env-steps/s", peer, peer_pace.steps_per_s, seeds=seeds
        )
        return row | {
            "per_cpu_s": round(ours.steps_per_cpu_s, 1),
            "peer_per_cpu_s": round(peer_pace.steps_per_cpu_s, 1),
            "ratio_per_cpu_s": round(ours.steps_per_cpu_s / peer_pace.steps_per_cpu_s, 2),
        }

    def peer(self, name: str, *words: object, env: Mapping[str, str] | None = None) -> Any:
        """What a peer prints that is measured in a process of its own.

        Args:
            name: A key of `PEERS`, with the algorithm behind it where it has several: "sb3-ppo".
            words: The arguments of its script.
            env: Its environment variables, if not those of this process.

        Raises:
            NotMeasuredError: If it is missing or fails; the message has its last line of output.
        """
        return apart(name, self.peer_command(name, *words), env)

    def pace(self, name: str, *words: object) -> Pace:
        """The pace of a peer."""
        printed = self.peer(name, *words)
        return Pace(printed["steps_per_s"], printed["steps_per_cpu_s"])

    def peer_command(self, name: str, *words: object) -> list[str]:
        """The command line of a peer."""
        key, _, algorithm = name.partition("-")
        peer = PEERS[key]
        if peer.file:  # this interpreter has what a checkout needs
            command = [sys.executable, "-m", f"benchmarks.{peer.script}"]
            words = (peer.checkout(self.sources), *([algorithm] if algorithm else []), *words)
        else:
            command = [peer.interpreter(self.python), "-m", f"benchmarks.{peer.script}"]
            words = (name, *words) if peer.script == "rl_peers" else words
        return [*command, *map(str, words)]

    def has_source(self, key: str) -> bool:
        """Whether there is a checkout of a peer."""
        return any((source / PEERS[key].file).is_file() for source in self.sources)


Measure = Callable[[Bench], dict | list[dict]]


def main(
    name: str,
    doc: str | None,
    ids: Mapping[str, Measure],
    arguments: Sequence[str] | None = None,
    results: str | None = None,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
    has_default: bool = True,
) -> None:
    """The command line of a benchmark: measure the given ids, or all, and save their numbers.

    Args:
        name: The module in `benchmarks`.
        doc: The text of `--help`.
        ids: What measures a number, by its id; the same function may have several ids.
        arguments: The command line, if not that of the process.
        results: The file in `docs/benchmarks`, if it has another name than the module.
        add_options: Adds the options that only this benchmark has.
        has_default: Whether no id means all of them; otherwise it is an error.
    """
    workspace.settle_environment()
    parser = parser_of(doc)
    count = "*" if has_default else "+"
    parser.add_argument("ids", nargs=count, metavar="ID", help=", ".join(ids))
    add_peer_options(parser)
    parser.add_argument("--small", action="store_true", help="only check that it runs; no result")
    parser.add_argument("--dry-run", action="store_true", help="print only, write nothing")
    if add_options:
        add_options(parser)
    options = parser.parse_args(arguments)
    skipped, saves = 0, not (options.small or options.dry_run)
    for measure in dict.fromkeys(ids[id] for id in chosen(parser, options.ids, ids)):
        id = next(id for id in ids if ids[id] is measure)
        command = f"python -m benchmarks.{name} {id}"
        bench = Bench(options.peers, options.small, options.source, command, saves, options)
        try:
            measured = measure(bench)
        except NotMeasuredError as reason:
            print(f"{id}: skipped: {reason}", flush=True)
            skipped += 1
            continue
        rows = [measured] if isinstance(measured, dict) else measured
        for row in rows:
            print(record.line(row), flush=True)
        if saves:
            record.save(results or name, rows)
    if skipped and options.ids:
        raise SystemExit(f"{skipped} not measured")


def parser_of(doc: str | None, seeds: Sequence[int] | None = None) -> argparse.ArgumentParser:
    """A parser that shows the docstring of a module, with `--seeds` if these are given."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if seeds is not None:
        parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    return parser


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """Add `--peers` and `--source`, the places of peers."""
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the peers")
    parser.add_argument(
        "--source",
        type=Path,
        action="append",
        default=[],
        metavar="CHECKOUT",
        help="of a peer that is no package; may be given several times",
    )


def chosen(
    parser: argparse.ArgumentParser, ids: Collection[str], known: Collection[str]
) -> Collection[str]:
    """The ids of a command line, or all; an unknown one ends it and names the closest."""
    for id in ids:
        if id not in known:
            parser.error(f"no benchmark '{id}'{did_you_mean(id, known)}")
    return ids or known


def by_name(*measures: Measure) -> dict[str, Measure]:
    """Functions by their names, for those whose name is the id."""
    return {measure.__name__: measure for measure in measures}  # type: ignore[attr-defined]


def apart(name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Any:
    """What a command prints as its last line, in JSON; it runs with one thread.

    Raises:
        NotMeasuredError: If it fails; the message has `name` and the command's last line.
    """
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    env = {**(os.environ if env is None else env), **one_thread}
    done = subprocess.run(
        command, cwd=record.ROOT, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise NotMeasuredError(f"{name}: {errors[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def train(
    preset: str,
    run_dir: Path,
    overrides: Sequence[str] = (),
    threads: int = 1,
    trackers: Sequence[str] = (),
) -> dict:
    """Run `rrf train` in a process of its own; returns the content of result.json."""
    words = [*overrides, f"trackers=[{','.join(trackers)}]", "--run-dir", str(run_dir)]
    run_rrf("train", preset, *words, threads=threads)
    return json.loads((run_dir / "result.json").read_text())


def run_rrf(*words: str, threads: int = 1) -> None:
    """Run a command of `rrf` with so many threads."""
    processes.run(  # which ends with this process: it writes into the folder of the next call
        [sys.executable, "-m", "rrf.cli", *words],
        on_line=functools.partial(print, flush=True),
        cwd=workspace.home(),
        env={"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
    )
