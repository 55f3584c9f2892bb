"""What a team's servers carry: `python -m benchmarks.scale [ID ...]`, default all.

`queued_runs_lost`, `queued_run_s` and `queued_run_cpu_s`: flow runs that do nothing, all queued at
once on a real Prefect server (SQLite) and run by a real worker (`infra.worker`), each in a process
of its own.

`convert_10tb_core_days`: RLDS shards of the demonstration recordings (`dvc pull`), converted by a
flow whose mapped tasks take some shards each, in processes; ten terabytes are arithmetic.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import flow_overhead, harness
from benchmarks.clock import Stopwatch
from benchmarks.data_recordings import write_recordings
from benchmarks.harness import Bench, Measure
from infra import services
from rrf import processes

NUM_RUNS, AT_ONCE, NUM_PARTS, TIMES = 200, 4, 2, 40
TEN_TB = 10e12
_DAY_S = 86_400
_PATIENCE_S = 4 * 3600


def queued_runs(bench: Bench) -> list[dict]:
    """Runs that are not Completed in the end, and wall and CPU-seconds for each of them."""
    number = bench.size(NUM_RUNS, 3)
    with _stack() as (checkout, env):
        _program(checkout, env, "import benchmarks.scale as s; s.deploy()")
        with Stopwatch() as of_all:  # also of the worker, which is over then
            worker = processes.start(
                [sys.executable, "-m", "infra.worker"],
                cwd=checkout,
                env=env | {"RRF_WORKER_LIMIT": str(AT_ONCE)},
                stdout=subprocess.DEVNULL,
            )
            try:
                with Stopwatch() as watch:
                    program = f"import benchmarks.scale as s; s.drain({number})"
                    states = json.loads(_program(checkout, env, program).splitlines()[-1])
            finally:
                processes.stop(worker, grace_s=60)
    lost = number - states.get("Completed", 0)
    unit = f"of {number} queued runs, {AT_ONCE} at once"
    cpu_unit = f"CPU-s each with the worker, {unit}"
    return [
        bench.number("queued_runs_lost", lost, unit),
        bench.number("queued_run_s", watch.wall_s / number, f"wall s each, {unit}"),
        bench.number("queued_run_cpu_s", of_all.cpu_s / number, cpu_unit),
    ]


def deploy() -> None:
    """Create the pool with a deployment of the flow that does nothing."""
    from prefect.client.orchestration import get_client

    from benchmarks.scale_flows import nothing
    from infra import deployments

    deployments._create_pool()
    deployments.create_queues()
    with get_client(sync_client=True) as client:
        client.create_deployment(
            client.create_flow(nothing),
            "nothing",
            entrypoint="benchmarks/scale_flows.py:nothing",
            path=str(Path.cwd()),
            work_pool_name=deployments.POOL,
        )


def drain(number: int) -> None:
    """Queue runs, wait until none of them goes on, and print how many ended in which state."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        DeploymentFilter,
        DeploymentFilterName,
    )
    from prefect.client.schemas.objects import TERMINAL_STATES

    chosen = DeploymentFilter(name=DeploymentFilterName(any_=["nothing"]))
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("nothing/nothing")
        for _ in range(number):
            client.create_flow_run_from_deployment(deployment.id)
        deadline, ended = time.monotonic() + _PATIENCE_S, []
        while len(ended) < number and time.monotonic() < deadline:
            time.sleep(1)
            runs = [
                run
                for offset in range(0, number, 100)
                for run in client.read_flow_runs(deployment_filter=chosen, limit=100, offset=offset)
            ]
            ended = [run for run in runs if run.state and run.state.type in TERMINAL_STATES]
    sys.stdout.write(json.dumps(collections.Counter(run.state_name for run in ended)) + "\n")


def convert_10tb_core_days(bench: Bench) -> dict:
    """Days that one core needs for ten terabytes of recordings."""
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch, "raw", "1.0.0")
        write_recordings(raw, bench.size(TIMES, 1))
        num_bytes = sum(path.stat().st_size for path in raw.iterdir())
        frames, cpu_s = _converted(raw, Path(scratch, "out"))
    days = TEN_TB / (num_bytes / cpu_s) / _DAY_S
    unit = f"core-days; measured on {num_bytes / 1e6:.0f} MB, {frames} frames"
    return bench.number("convert_10tb_core_days", days, unit)


def _converted(raw: Path, out: Path) -> tuple[int, float]:
    """Frames, and CPU-seconds of the flow with all that it starts."""
    with _stack() as (checkout, env):
        flow = "from benchmarks.scale_flows import convert_all"
        words = (str(raw), str(out), NUM_PARTS)
        with Stopwatch() as watch:
            said = _program(checkout, env, f"{flow}; print(convert_all{words!r})")
    return int(said.splitlines()[-1]), watch.cpu_s


@contextmanager
def _stack() -> Iterator[tuple[Path, dict[str, str]]]:
    """A clone of this repository, and the environment of clients of a Prefect server of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        checkout = flow_overhead._clone(Path(scratch) / "checkout")
        os.environ["RRF_HOME"] = str(checkout)
        with services.temporary_prefect(Path(scratch) / "prefect") as variables:
            yield checkout, {**os.environ, **variables, "RRF_MACHINE": "bench"}


def _program(checkout: Path, env: dict[str, str], code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=checkout, env=env, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


IDS: dict[str, Measure] = {
    "queued_runs": queued_runs,
    "convert_10tb_core_days": convert_10tb_core_days,
}


if __name__ == "__main__":
    harness.main("scale", __doc__, IDS)
