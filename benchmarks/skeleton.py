"""Basic numbers of the platform: `python -m benchmarks.skeleton [ID ...]`, by default all of them.

Each function measures one number, and its peer, if there is one, in the same run. `demo_wall_s`
clones the committed state into an empty folder and runs `make demo` there, including installation.
"""

import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import env_speed, flow_overhead, record
from rrf import workspace

COMMAND = "python -m benchmarks.skeleton"
MODEL = "metaworld-compact"


def help_cpu_s(runs: int = 7) -> dict:
    """CPU-seconds of the whole `rrf --help` process; median of `runs` after one warm-up."""
    seconds = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([_rrf(), "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return record.number(
        "help_cpu_s", statistics.median(seconds[1:]), "CPU-s", command=f"{COMMAND} help_cpu_s"
    )


def first_line_s(runs: int = 5) -> dict:
    """Wall seconds from the start of `rrf train` to its first line; median of `runs` after one
    warm-up."""
    seconds = [_until(_training(), r"training ")[0] for _ in range(runs + 1)]
    return _started("first_line_s", seconds, "s")


def train_start_cpu_s(runs: int = 5) -> dict:
    """CPU-seconds of `rrf train` with its usual trackers until it prints its first iteration."""
    seconds = [_until(_training(), r"iteration 1/")[1] for _ in range(runs + 1)]
    return _started("train_start_cpu_s", seconds, "CPU-s")


def eval_start_cpu_s(runs: int = 5) -> dict:
    """CPU-seconds of `rrf eval` until it prints its first episodes."""
    with _trained() as policy:
        words = [*("eval", policy, "--num-videos", "0", "--out")]
        seconds = [
            _until([*words, f"{policy}/{run}/eval"], r"episode ")[1] for run in range(runs + 1)
        ]
    return _started("eval_start_cpu_s", seconds, "CPU-s")


def export_cpu_s(runs: int = 5) -> dict:
    """CPU-seconds of the whole `rrf export --onnx`."""
    with _trained() as policy:
        words = ["export", policy, "--onnx", f"{policy}/policy.onnx"]
        seconds = [_until(words, "onnx ", to_the_end=True)[1] for _ in range(runs + 1)]
    return _started("export_cpu_s", seconds, "CPU-s")


def _training() -> list[str]:
    return [
        *("train", "pendulum-ppo", "max_iterations=3", "--no-resume"),
        *("--run-dir", str(Path(tempfile.gettempdir(), "rrf-startup-benchmark"))),
    ]


@contextlib.contextmanager
def _trained() -> Iterator[str]:
    """The run directory of a policy for Pendulum-v1."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "pendulum-ppo", "max_iterations=3", "trackers=[]", "--run-dir", folder]
        subprocess.run([_rrf(), *words], check=True, capture_output=True, cwd=workspace.home())
        yield folder


def _until(words: list[str], line: str, to_the_end: bool = False) -> tuple[float, float]:
    """Wall seconds and CPU-seconds of `rrf WORDS` until it prints a line that begins so, or until
    it has ended."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    reached = None
    with subprocess.Popen(
        [_rrf(), *words], stdout=subprocess.PIPE, text=True, cwd=workspace.home()
    ) as process:
        assert process.stdout
        for printed in process.stdout:
            if reached is None and re.match(line, printed):
                reached = time.perf_counter() - begin, _cpu_s_of(process.pid)
    if process.returncode or reached is None:
        raise RuntimeError(f"`rrf {' '.join(words)}` ended with exit code {process.returncode}")
    if not to_the_end:
        return reached
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, used


def _cpu_s_of(pid: int) -> float:
    """CPU-seconds of a running process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _started(id: str, seconds: list[float], unit: str) -> dict:
    return record.number(id, statistics.median(seconds[1:]), unit, command=f"{COMMAND} {id}")


def _rrf() -> Path:
    return Path(sys.executable).with_name("rrf")


def eval_episodes_per_s() -> dict:
    """Episodes per wall second: the champion, the demo protocol, two worker processes."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [
                *(sys.executable, "-m", "rrf.cli", "eval", f"{MODEL}@champion", "--out", out),
                *("--protocol", "configs/protocols/metaworld-demo.yaml", "--workers", "2"),
                *("--num-videos", "0"),
            ],
            check=True,
            cwd=workspace.home(),
        )
        result = json.loads(Path(out, "evaluation.json").read_text())
    return record.number(
        "eval_episodes_per_s",
        len(result["episodes"]) / result["timings"]["wall_s"],
        "episodes/s",
        command=f"{COMMAND} eval_episodes_per_s",
        seeds=[result["protocol"]["seed"]],
    )


def demo_wall_s() -> dict:
    """Wall seconds of `make demo` on a fresh clone in an empty folder, including installation."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", workspace.home(), f"{folder}/clone"], check=True)
        begin = time.perf_counter()
        subprocess.run(["make", "demo"], cwd=f"{folder}/clone", check=True)
        seconds = time.perf_counter() - begin
    return record.number("demo_wall_s", seconds, "s", command=f"{COMMAND} demo_wall_s")


BENCHMARKS: dict[str, Callable[[], dict]] = {
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
    workspace.settle_environment()
    record.measure_named("skeleton", __doc__, BENCHMARKS)
