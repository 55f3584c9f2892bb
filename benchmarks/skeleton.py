"""Basic numbers of the platform: `python -m benchmarks.skeleton [ID ...]`, by default all of them.

Each function measures one number, and its peer, if there is one, in the same run. `demo_wall_s`
clones the committed state into an empty folder and runs `make demo` there, including installation.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
        subprocess.run(
            [Path(sys.executable).with_name("rrf"), "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return record.number(
        "help_cpu_s", statistics.median(seconds[1:]), "CPU-s", command=f"{COMMAND} help_cpu_s"
    )


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
}


if __name__ == "__main__":
    workspace.settle_environment()
    record.measure_named("skeleton", __doc__, BENCHMARKS)
