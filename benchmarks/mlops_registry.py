"""Speed of the registry and of flows: what people wait for.

`python -m benchmarks.mlops_registry [ID ...]`; `flow_overhead_s` is measured by
`python -m benchmarks.skeleton flow_overhead_s`. The store of `lineage_s_10k_runs` and
`models_list_cpu_s` is a SQLite file of MLflow with 10,000 runs and 1,000 versions of 20 models,
whose ledgers, tags and lineages are whole. It is filled by SQL, since MLflow would take an hour.
Commands are measured as whole processes, in CPU-seconds: what else runs here does not count.
"""

import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks import flow_overhead, harness
from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench
from benchmarks.record import ROOT
from infra import services
from rrf import atomic
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.registry import promotion
from rrf.registry.changes import CANDIDATE, CHAMPION
from rrf.registry.ledger import HEAD, Ledger, key_of
from rrf.registry.versions import CHECKPOINT_DIGEST
from tests.registry import conftest as registry

NUM_RUNS, NUM_MODELS, NUM_VERSIONS = 10_000, 20, 50
_NUM_ALL = NUM_MODELS * NUM_VERSIONS
_CHAIN = 3  # trainings behind a version, one from another
_REPEATS = 5


def lineage_s_10k_runs(bench: Bench) -> dict:
    """CPU-seconds of `rrf models lineage NAME@champion`, three trainings deep."""
    with filled_store(bench) as home:
        cost = _cpu_s(bench, home, "models", "lineage", "model-00@champion")
        standing = _cpu_s(bench, home, "models", "standing-on", "--dataset", "demo@0")
    print(f"rrf models standing-on: {standing:.2f} CPU-s")
    return bench.number("lineage_s_10k_runs", cost, "CPU-s")


def lineage_s_100k_runs(bench: Bench) -> dict:
    """The same with ten times as many runs."""
    with filled_store(bench, times=10) as home:
        cost = _cpu_s(bench, home, "models", "lineage", "model-00@champion")
    return bench.number("lineage_s_100k_runs", cost, "CPU-s")


def models_list_cpu_s(bench: Bench) -> dict:
    """CPU-seconds of `rrf models list` of all 1,000 versions."""
    with filled_store(bench) as home:
        return bench.number("models_list_cpu_s", _cpu_s(bench, home, "models", "list"), "CPU-s")


def promotion_s(bench: Bench) -> dict:
    """CPU-seconds of one promotion in a process that has loaded MLflow, as in a flow; the gate
    judges it again, its files are fetched and checked, card and ledger are written."""
    data = DatasetLineage("demo", "0" * 32, validation="passed", num_episodes=7)
    lineage = Lineage((data,), git_revision="0" * 40, git_dirty=False)
    repeats = 1 + bench.size(_REPEATS, 1)  # the first one imports
    costs = []
    with empty_store() as home:
        run_id = registry.new_run(store.connect())
        registry.write_gate(home / "configs/gates/g.yaml")
        for seed in range(1, repeats + 1):
            registry.register(home, "policy", run_id, seed, 18, lineage)
        for version in range(1, repeats + 1):
            with Stopwatch() as watch:
                promotion.promote("policy", str(version))
            costs.append(watch.cpu_s)
    return bench.number("promotion_s", statistics.median(costs[1:]), "CPU-s")


def noop_flow_s(bench: Bench) -> dict:
    """CPU-seconds of `train-vla` with one training, when everything that it does is done: data,
    training, evaluation, version and champion are looked at and found as they should be."""
    parameters = flow_overhead.PARAMETERS
    flow = "from flows.train_vla import train_vla as flow"
    code = f"{flow}; flow(**{parameters!r})"
    with tempfile.TemporaryDirectory() as scratch:
        checkout = Path(scratch) / "checkout"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
        env = {**os.environ, "RRF_HOME": str(checkout), "PYTHONPATH": str(checkout)}
        os.environ["RRF_HOME"] = str(checkout)
        with services.temporary_prefect(Path(scratch) / "prefect") as variables:
            costs = []
            for _ in range(1 + bench.size(3, 1)):
                with Stopwatch() as watch:
                    subprocess.run(
                        [sys.executable, "-c", code],
                        cwd=checkout,
                        env={**env, **variables},
                        check=True,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                costs.append(watch.cpu_s)
    return bench.number("noop_flow_s", statistics.median(costs[1:]), "CPU-s")


def _cpu_s(bench: Bench, home: Path, *words: str) -> float:
    """The median CPU-seconds of a command, after one that does not count."""
    costs = []
    for _ in range(1 + bench.size(_REPEATS, 1)):
        with Stopwatch() as watch:
            subprocess.run(
                [sys.executable, "-m", "rrf.cli", *words],
                cwd=ROOT,
                env={**os.environ, "RRF_HOME": str(home), "PYTHONPATH": str(ROOT)},
                check=True,
                stdout=subprocess.DEVNULL,
            )
        costs.append(watch.cpu_s)
    return statistics.median(costs[1:])


@contextlib.contextmanager
def filled_store(bench: Bench, times: int = 1) -> Iterator[Path]:
    """A workspace whose store has many runs, so many times, and versions."""
    with empty_store() as home:
        experiment = store.experiment_id(store.connect(), "train")
        fill(home / ".rrf/mlflow.db", experiment, times * bench.size(NUM_RUNS, 1000))
        yield home


@contextlib.contextmanager
def empty_store() -> Iterator[Path]:
    """A workspace whose store has nothing."""
    before = {name: os.environ.get(name) for name in ("RRF_HOME", "MLFLOW_TRACKING_URI")}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["RRF_HOME"] = scratch
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        try:
            yield Path(scratch)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def fill(database: Path, experiment: str, num_runs: int) -> None:
    """Write runs, each started from the one before it in chains, and versions of the last ones."""
    runs, tags = [], []
    digests = [f"{number:064x}" for number in range(1, num_runs + 1)]
    for number, digest in enumerate(digests):
        id = uuid.UUID(int=number).hex
        time_ms = 1_700_000_000_000 + number * 1000
        runs.append(
            (id, f"run {number}", "LOCAL", "", "", "bench", "FINISHED", time_ms, time_ms + 900, "",
             "active", f"rrf-artifacts:/train/{id}/artifacts", int(experiment))
        )  # fmt: skip
        facts = {CHECKPOINT_DIGEST: digest} | _lineage(number, digests)
        tags += [(id, key, value) for key, value in facts.items()]
        tags += [(id, f"note.{place}", "x" * 40) for place in range(8)]
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        columns = (
            "run_uuid, name, source_type, source_name, entry_point_name, user_id, status, "
            "start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id"
        )
        connection.executemany(f"INSERT INTO runs ({columns}) VALUES ({_marks(13)})", runs)
        connection.executemany(
            f"INSERT INTO tags (run_uuid, key, value) VALUES ({_marks(3)})", tags
        )
        for model in range(NUM_MODELS):
            _add_model(connection, model, digests)


def _add_model(connection: sqlite3.Connection, model: int, digests: list[str]) -> None:
    name, time_ms = f"model-{model:02}", 1_700_000_000_000
    ledger, versions, tags = Ledger(name), [], []
    for version in range(1, NUM_VERSIONS + 1):
        number = (model * NUM_VERSIONS + version) * (len(digests) // _NUM_ALL) - 1
        facts = _lineage(number, digests)
        lineage = {key.removeprefix("lineage."): value for key, value in facts.items()}
        registered = {
            "checkpoint_digest": digests[number], "lineage_digest": atomic.digest_of(lineage)
        }  # fmt: skip
        entry = ledger.next_entry(
            action="register", version=str(version), reason="a checkpoint", registration=registered
        )
        ledger = Ledger(name, (*ledger.entries, entry))
        versions.append((name, version, time_ms, uuid.UUID(int=number).hex, "None"))
        shown = facts | {CHECKPOINT_DIGEST: digests[number]}
        tags += [(name, version, key, value) for key, value in shown.items()]
    champion = str(_CHAIN)  # as many trainings stand behind it
    promoted = ledger.next_entry(
        action="promote", version=champion, champion=champion, reason="gate g: pass, success 0.900"
    )
    ledger = Ledger(name, (*ledger.entries, promoted))
    entries = [(name, key_of(entry.index), entry.text()) for entry in ledger.entries]
    aliases = [(name, CANDIDATE, NUM_VERSIONS), (name, CHAMPION, _CHAIN)]
    for table, columns, rows in (
        ("registered_models", "name, creation_time", [(name, time_ms)]),
        ("registered_model_tags", "name, key, value", [*entries, (name, HEAD, ledger.end)]),
        ("model_versions", "name, version, creation_time, run_id, current_stage", versions),
        ("model_version_tags", "name, version, key, value", tags),
        ("registered_model_aliases", "name, alias, version", aliases),
    ):
        marks = _marks(1 + len(columns.split(",")))
        connection.executemany(
            f"INSERT INTO {table} (workspace, {columns}) VALUES ({marks})",
            [("default", *row) for row in rows],
        )


def _lineage(number: int, digests: list[str]) -> dict[str, str]:
    """The tags of the lineage of a training; all but the first of each chain start from another."""
    facts = {
        "dataset": "demo", "dataset_md5": f"{number % 7:032x}.dir", "validation": "passed",
        "git_revision": f"{number % 11:040x}", "git_dirty": json.dumps(False),
    }  # fmt: skip
    if number % _CHAIN:
        facts["parent_checkpoint"] = digests[number - 1]
    return {f"lineage.{key}": value for key, value in facts.items()}


def _marks(count: int) -> str:
    return ", ".join("?" * count)


IDS = harness.by_name(
    lineage_s_10k_runs, lineage_s_100k_runs, models_list_cpu_s, promotion_s, noop_flow_s
)

if __name__ == "__main__":
    harness.main("mlops_registry", __doc__, IDS, results="mlops")
