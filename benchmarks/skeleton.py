"""Basic numbers of the platform: `python -m benchmarks.skeleton [ID ...]`, by default all of them.

Each function measures one number, and its peer, if there is one, in the same run. `demo_wall_s`
clones the committed state into an empty folder and runs `make demo` there, including installation.
"""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import env_speed, flow_overhead, harness
from benchmarks.clock import Stopwatch, children_cpu_s
from benchmarks.harness import Bench, Measure, run_rrf, train
from rrf import workspace

MODEL = "metaworld-compact"


def help_cpu_s(bench: Bench) -> dict:
    """CPU-seconds of the whole `rrf --help` process."""
    return bench.number("help_cpu_s", _median(bench, lambda _: _cpu_s_of(["--help"])), "CPU-s")


def first_line_s(bench: Bench) -> dict:
    """Wall seconds from the start of `rrf train` to its first line."""
    value = _median(bench, lambda _: _until(_training(), r"training ")[0])
    return bench.number("first_line_s", value, "s")


def train_start_cpu_s(bench: Bench) -> dict:
    """CPU-seconds of `rrf train` with its usual trackers until it prints its first iteration."""
    value = _median(bench, lambda _: _until(_training(), r"iteration 1/")[1])
    return bench.number("train_start_cpu_s", value, "CPU-s")


def eval_start_cpu_s(bench: Bench) -> dict:
    """CPU-seconds of `rrf eval` until it prints its first episodes."""
    with _trained() as policy:
        words = ["eval", policy, "--num-videos", "0", "--out"]
        value = _median(bench, lambda run: _until([*words, f"{policy}/{run}/eval"], "episode ")[1])
    return bench.number("eval_start_cpu_s", value, "CPU-s")


def export_cpu_s(bench: Bench) -> dict:
    """CPU-seconds of the whole `rrf export --onnx`."""
    with _trained() as policy:
        words = ["export", policy, "--onnx", f"{policy}/policy.onnx"]
        value = _median(bench, lambda _: _cpu_s_of(words))
    return bench.number("export_cpu_s", value, "CPU-s")


def _median(bench: Bench, measure: Callable[[int], float]) -> float:
    """The median of several runs, which are numbered; the first one is a warm-up."""
    return statistics.median([measure(run) for run in range(1 + bench.size(5, 1))][1:])


def _training() -> list[str]:
    return [
        *("train", "pendulum-ppo", "max_iterations=3", "--no-resume"),
        *("--run-dir", str(Path(tempfile.gettempdir(), "rrf-startup-benchmark"))),
    ]


@contextlib.contextmanager
def _trained() -> Iterator[str]:
    """The run directory of a policy for Pendulum-v1."""
    with tempfile.TemporaryDirectory() as folder:
        train("pendulum-ppo", Path(folder), ["max_iterations=3"])
        yield folder


def _until(words: list[str], line: str) -> tuple[float, float]:
    """Wall seconds and CPU-seconds of `rrf WORDS` until it prints a line that begins so."""
    begin, reached = time.perf_counter(), None
    with subprocess.Popen(
        [_rrf(), *words], stdout=subprocess.PIPE, text=True, cwd=workspace.home()
    ) as process:
        assert process.stdout
        for printed in process.stdout:
            if reached is None and re.match(line, printed):
                reached = time.perf_counter() - begin, _cpu_s_so_far(process.pid)
    if process.returncode or reached is None:
        raise RuntimeError(f"`rrf {' '.join(words)}` ended with exit code {process.returncode}")
    return reached


def _cpu_s_so_far(pid: int) -> float:
    """CPU-seconds of a running process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _cpu_s_of(words: list[str]) -> float:
    """CPU-seconds of the whole `rrf WORDS`."""
    before = children_cpu_s()
    subprocess.run([_rrf(), *words], check=True, capture_output=True, cwd=workspace.home())
    return children_cpu_s() - before


def _rrf() -> Path:
    return Path(sys.executable).with_name("rrf")


def eval_episodes_per_s(bench: Bench) -> dict:
    """Episodes per wall second: the champion, the demo protocol, two worker processes."""
    with tempfile.TemporaryDirectory() as out:
        words = ["--protocol", "configs/protocols/metaworld-demo.yaml", "--workers", "2"]
        run_rrf("eval", f"{MODEL}@champion", "--out", out, *words, "--num-videos", "0")
        result = json.loads(Path(out, "evaluation.json").read_text())
    return bench.number(
        "eval_episodes_per_s",
        len(result["episodes"]) / result["timings"]["wall_s"],
        "episodes/s",
        seeds=[result["protocol"]["seed"]],
    )


def demo_wall_s(bench: Bench) -> dict:
    """Wall seconds of `make demo` on a fresh clone in an empty folder, including installation."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", workspace.home(), f"{folder}/clone"], check=True)
        with Stopwatch() as watch:
            subprocess.run(["make", "demo"], cwd=f"{folder}/clone", check=True)
    return bench.number("demo_wall_s", watch.wall_s, "s")


IDS: dict[str, Measure] = {
    "images_per_cpu_s_64": env_speed.images_per_cpu_s_64,
    "demo_frames_per_s": env_speed.demo_frames_per_s,
    "eval_episodes_per_s": eval_episodes_per_s,
    "flow_overhead_s": flow_overhead.flow_overhead_s,
    "demo_wall_s": demo_wall_s,
    "help_cpu_s": help_cpu_s,
    "first_line_s": first_line_s,
    "train_start_cpu_s": train_start_cpu_s,
    "eval_start_cpu_s": eval_start_cpu_s,
    "export_cpu_s": export_cpu_s,
}


if __name__ == "__main__":
    harness.main("skeleton", __doc__, IDS)
