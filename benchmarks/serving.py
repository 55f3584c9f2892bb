"""Latency and throughput of `rrf serve`: `python -m benchmarks.serving [ID ...]`, default all.

The server is a process of its own, with random weights and the laptop sizes; its speed does not
depend on what was learned. Clients are threads of this process, each of which sends its next
observation when it has the answer, as fast as it can. So eight clients are more than a fleet of
eight robots would be. A latency is what the client sees: packing, the way over 127.0.0.1, waiting
for a batch, the policy, and the way back.
"""

import concurrent.futures
import contextlib
import functools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks import harness
from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench, Measure
from benchmarks.vla_gpu import stats_of
from rrf.client import PolicyClient
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE
from rrf.lineage import Lineage
from rrf.presets import resolve
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg

SECONDS = 10.0
WARM_UP = 20
FLEET, PERIOD_S = 50, 0.5
COMPACT, PI0 = "compact-vla-pretrain", "pi0-laptop"
_SIZE, _DIMS = 64, 4


_LATENCIES = {
    "serve_p99_ms": (COMPACT, 1),
    "serve_p99_ms_8_clients": (COMPACT, 8),
    "serve_pi0_p99_ms": (PI0, 1),
    "serve_pi0_p99_ms_8_clients": (PI0, 8),
}
"""Id -> the preset that is served, and the number of clients."""


def serve_50_robots(bench: Bench) -> dict:
    """The 99th percentile of 50 robots that ask twice a second each, as for chunks of half a second
    of motion; the server carries as many as its throughput allows.
    """
    num_robots = bench.size(FLEET, 3)
    with _served(COMPACT, max_batch=8) as url:
        latencies_s, seconds = _load(bench, url, num_robots, period_s=PERIOD_S)
        at_full_speed, full_s = _load(bench, url, num_robots)
    p99_ms = float(np.percentile(latencies_s, 99)) * 1000
    robots = len(at_full_speed) / full_s * PERIOD_S
    unit = f"ms, {num_robots} robots, 2 requests/s each, {len(latencies_s)} requests in"
    unit += f" {seconds:.0f} s; full at {robots:.0f} robots"
    return bench.number("serve_p99_ms_50_robots", p99_ms, unit)


def serve_batch_throughput(bench: Bench) -> list[dict]:
    """Requests per second of eight clients in batches, compared with one request at a time."""
    rows = []
    for name, preset in (("serve", COMPACT), ("serve_pi0", PI0)):
        batched, single = (_requests_per_s(bench, preset, max_batch) for max_batch in (8, 1))
        rows.append(
            bench.compare(
                f"{name}_batch_throughput",
                batched,
                "requests/s, 8 clients",
                "one request at a time",
                single,
            )
        )
    return rows


def _latency(name: str, preset: str, num_clients: int, bench: Bench) -> dict:
    """The 99th percentile."""
    with _served(preset, max_batch=8) as url:
        latencies_s, _ = _load(bench, url, num_clients)
    p99_ms = float(np.percentile(latencies_s, 99)) * 1000
    clients = "1 client" if num_clients == 1 else f"{num_clients} clients"
    median_ms = float(np.median(latencies_s)) * 1000
    unit = f"ms, {clients}, {len(latencies_s)} requests; median {median_ms:.3g} ms"
    return bench.number(name, p99_ms, unit)


def _requests_per_s(bench: Bench, preset: str, max_batch: int) -> float:
    with _served(preset, max_batch) as url:
        latencies_s, seconds = _load(bench, url, num_clients=8)
    return len(latencies_s) / seconds


def _load(
    bench: Bench, url: str, num_clients: int, period_s: float = 0.0
) -> tuple[list[float], float]:
    """The latency of every request of some seconds, and how long it took to make them. Clients ask
    once in a period, or as fast as they can.
    """
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(url)) for _ in range(num_clients)]
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(num_clients))
        until = time.perf_counter() + bench.size(SECONDS, 2.0)
        warm_up = bench.size(2 if period_s else WARM_UP, 1)
        ask = functools.partial(_ask, until=until, warm_up=warm_up, period_s=period_s)
        with Stopwatch() as watch:
            by_client = list(threads.map(ask, clients, range(num_clients)))
        return [latency_s for latencies_s in by_client for latency_s in latencies_s], watch.wall_s


def _ask(
    client: PolicyClient, seed: int, until: float, warm_up: int, period_s: float
) -> list[float]:
    rng = np.random.default_rng(seed)
    time.sleep(rng.uniform(0, period_s))  # robots do not ask in step
    due = time.perf_counter()
    inputs = client.metadata["inputs"]
    observation = {
        name: rng.integers(0, 256, described["shape"], dtype=np.uint8)
        if name.startswith(IMAGE_PREFIX)
        else rng.uniform(-1, 1, described["shape"]).astype(np.float32)
        for name, described in inputs.items()
        if described["dtype"] != "str"
    }
    latencies_s = []
    while time.perf_counter() < until:
        latencies_s.append(client.request({**observation, "prompt": "open a drawer"}).latency_s)
        due += period_s
        time.sleep(max(0.0, due - time.perf_counter()) if period_s else 0.0)
    return latencies_s[warm_up:]


@contextlib.contextmanager
def _served(preset: str, max_batch: int) -> Iterator[str]:
    """The url of a server with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(preset, Path(folder))
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rrf.cli", "serve", str(path), "--port", "0"),
                *("--max-batch", str(max_batch)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            urls = (re.search(r"ws://\S+", line) for line in process.stdout)
            url = next(filter(None, urls), None)
            if url is None:
                raise RuntimeError("rrf serve did not start")
            yield url[0]
        finally:
            process.terminate()
            process.wait(60)


def _written(preset: str, folder: Path) -> Path:
    """A checkpoint of a preset with random weights, for one camera."""
    cfg = resolve(preset)
    assert isinstance(cfg, SupervisedRunnerCfg)
    known = {"cameras": ["corner2"], "image_size": (_SIZE, _SIZE)}
    policy_cfg = cfg.policy.replace(**known, state_dim=_DIMS, action_dim=_DIMS)
    norm_stats = {STATE: stats_of(_DIMS), ACTION: stats_of(_DIMS)}
    torch.manual_seed(0)
    policy = policy_cfg.build(norm_stats)
    trainer = checkpoint.TrainerState({"none": torch.zeros(1)}, {"step": 0})
    return checkpoint.save(
        folder,
        0,
        cfg.replace(policy=policy_cfg),
        policy.state_dict(),
        norm_stats,
        trainer,
        Lineage(),
        policy.assets(),
    )


IDS: dict[str, Measure] = {
    **{name: functools.partial(_latency, name, *what) for name, what in _LATENCIES.items()},
    "serve_batch_throughput": serve_batch_throughput,
    "serve_50_robots": serve_50_robots,
}


if __name__ == "__main__":
    harness.main("serving", __doc__, IDS)
