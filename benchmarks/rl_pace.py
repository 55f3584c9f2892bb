"""Measure the speed of reinforcement learning: ours in this process, peers in their own processes
(`rl_peers`).
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.record import ROOT, number, save
from rrf.config import did_you_mean, parse_overrides
from rrf.presets import resolve

if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg
    from rrf.evaluation.results import Evaluation
    from rrf.runners.control.configs import ControlRunnerCfg

SB3, SBX = "Stable-Baselines3 2.9.2", "SBX 0.28.0"
TASK = "HalfCheetah-v5"
SEED = 0
_Size = typing.TypeVar("_Size")


class NotMeasuredError(Exception):
    """A number cannot be measured here; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """Steps of all environments per wall second and per CPU-second of all threads."""

    steps_per_s: float
    steps_per_cpu_s: float


@dataclasses.dataclass(frozen=True)
class Bench:
    """The options of a call of the benchmarks."""

    python: str = sys.executable
    """The interpreter that has the peers' packages."""
    is_small: bool = False
    """Only check that everything runs."""
    sources: Sequence[Path] = ()
    """Checkouts of peers that are no packages."""

    def size(self, full: _Size, small: _Size) -> _Size:
        """Choose between the full size of a measurement and the small one."""
        return small if self.is_small else full

    def source(self, file: str) -> Path | None:
        """The checkout that has this file."""
        return next((one for one in self.sources if (one / file).is_file()), None)

    def peer(self, peer: str, *words: str | int) -> dict:
        """Measure a peer of `rl_peers` in a separate process.

        Raises:
            NotMeasuredError: If its packages are missing or it fails; the message has its last
                line of output.
        """
        return measured_apart(peer, peer_command(self.python, peer, *words))


def measured_apart(name: str, command: Sequence[str]) -> dict:
    """The JSON object that a command prints as its last line.

    Raises:
        NotMeasuredError: If it fails; the message has `name` and the command's last line.
    """
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise NotMeasuredError(f"{name}: {said[-1]}; choose another interpreter with --peers")
    return json.loads(done.stdout.splitlines()[-1])


def peer_command(python: str, peer: str, *words: str | int) -> list[str]:
    """The command line of a peer."""
    return [python, str(ROOT / "benchmarks" / "rl_peers.py"), peer, *map(str, words)]


def corl_command(bench: Bench, algorithm: str, *words: str | int) -> list[str]:
    """The command line of `corl_peer` with this interpreter; empty without a checkout of CORL."""
    source = bench.source(f"algorithms/offline/{algorithm}.py")
    if source is None:
        return []
    peer = ROOT / "benchmarks" / "corl_peer.py"
    return list(map(str, [sys.executable, peer, source, algorithm, *words]))


def preset(name: str, overrides: Sequence[str]) -> "ControlRunnerCfg":
    """The config of a preset of state-based control."""
    from rrf.runners.control.configs import ControlRunnerCfg

    cfg = resolve(name, parse_overrides([*overrides, f"seed={SEED}"]))
    assert isinstance(cfg, ControlRunnerCfg)
    return cfg


def protocol_of(name: str) -> "ControlProtocolCfg":
    """A protocol of state-based control from `configs/protocols`."""
    from rrf.evaluation.control.configs import ControlProtocolCfg
    from rrf.evaluation.protocols.files import load_protocol

    protocol = load_protocol(ROOT / "configs" / "protocols" / f"{name}.yaml")
    assert isinstance(protocol, ControlProtocolCfg)
    return protocol


def judged(checkpoint: Path, protocol: "ControlProtocolCfg") -> "Evaluation":
    """Evaluate a trained policy under a protocol."""
    from rrf.evaluation.control.evaluate import evaluate_control
    from rrf.runners.checkpoints.control import load_control_policy

    policy, interface = load_control_policy(checkpoint)
    return evaluate_control(policy, interface, protocol)


def command(id: str) -> str:
    """The command that measures a number."""
    return f"python -m benchmarks.rl {id}"


def of_training(cfg: "ControlRunnerCfg", warm_up: int, iterations: int) -> Pace:
    """The pace of acting and learning together: the median over iterations after a warm-up.

    Args:
        warm_up: First iterations that are not counted, at least one.
        iterations: Iterations that are timed.
    """
    total = warm_up + iterations
    cfg = cfg.replace(
        max_iterations=total,
        save_interval=total,
        log_interval=1,
        video_interval=None,
        trackers=[],
    )
    marks: list[tuple[int, float, float]] = []

    def on_progress(progress: typing.Any) -> None:
        marks.append((progress.num_steps, time.perf_counter(), time.process_time()))

    with tempfile.TemporaryDirectory() as scratch:
        cfg.build(scratch).run(on_progress=on_progress)
    return median_pace(marks[warm_up - 1 :])


def median_pace(marks: Sequence[tuple[int, float, float]]) -> Pace:
    """The median pace between marks of (steps so far, wall seconds, CPU-seconds)."""
    pairs = list(itertools.pairwise(marks))
    wall, cpu = (
        statistics.median((b[0] - a[0]) / (b[clock] - a[clock]) for a, b in pairs)
        for clock in (1, 2)
    )
    return Pace(wall, cpu)


def alternating(
    ours: Callable[[], Pace], theirs: Sequence[Callable[[], dict]], repeats: int
) -> tuple[Pace, list[Pace]]:
    """Median paces of ours and of each peer, measured in turns so that all meet the same load."""
    paces: list[list[Pace]] = [[] for _ in range(1 + len(theirs))]
    for _ in range(repeats):
        paces[0].append(ours())
        for found, measure in zip(paces[1:], theirs, strict=True):
            row = measure()
            found.append(Pace(row["steps_per_s"], row["steps_per_cpu_s"]))
    first, *others = (
        Pace(
            statistics.median(pace.steps_per_s for pace in found),
            statistics.median(pace.steps_per_cpu_s for pace in found),
        )
        for found in paces
    )
    return first, others


def ratio_row(id: str, ours: Pace, peer: str, theirs: Pace, measured_by: str) -> dict:
    """The row that compares ours with a peer by wall seconds, and also by CPU-seconds.

    Args:
        measured_by: The id of the benchmark that measures this row.
    """
    row = number(
        id,
        ours.steps_per_s,
        "env-steps/s",
        command=command(measured_by),
        peer=peer,
        peer_value=theirs.steps_per_s,
        ratio=ours.steps_per_s / theirs.steps_per_s,
        seeds=[SEED],
    )
    return row | {
        "per_cpu_s": round(ours.steps_per_cpu_s, 1),
        "peer_per_cpu_s": round(theirs.steps_per_cpu_s, 1),
        "ratio_per_cpu_s": round(ours.steps_per_cpu_s / theirs.steps_per_cpu_s, 2),
    }


def measure_ids(
    known: dict[str, Callable[[Bench], list[dict]]],
    description: str | None,
    arguments: Sequence[str] | None,
) -> None:
    """The command line of a module of numbers: measure the given ids, or all of them, and write
    each number to `docs/benchmarks/rl.json`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help=", ".join(known))
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument(
        "--source",
        type=Path,
        action="append",
        default=[],
        help="a checkout of a peer that is no package; may be given several times",
    )
    parser.add_argument("--small", action="store_true")
    words = parser.parse_args(arguments)
    for id in words.ids:
        if id not in known:
            parser.error(f"no benchmark '{id}'{did_you_mean(id, known)}")
    bench, skipped = Bench(words.peers, words.small, words.source), 0
    for measure in dict.fromkeys(known[id] for id in words.ids or known):
        try:
            rows = measure(bench)
        except NotMeasuredError as reason:
            print(f"{measure.__name__}: skipped: {reason}", flush=True)
            skipped += 1
            continue
        for row in rows:
            print(json.dumps(row), flush=True)
        if not bench.is_small:
            save("rl", rows)
    if skipped and words.ids:
        raise SystemExit(f"{skipped} not measured")
