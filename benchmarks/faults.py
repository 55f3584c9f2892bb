"""What survives kill -9 and other faults: `python -m benchmarks.faults [FAULT ...]`, default all.

Each fault meets real work with 20 seeds (`tests.faults.kills` says what a seed decides), and then
nothing may be lost, half written or counted twice. What a seed gave is appended to a file in
`.rrf/`, from which the next call goes on while the code is the same. `docs/benchmarks/faults.json`
gets a row for each fault, and `mlops.json` the sums over kills.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness, record
from benchmarks.harness import Bench
from rrf import atomic, workspace
from tests.faults.kills import Harmed, Survival

SEEDS = 20
FILE = "faults"
_KILLS = "kill -9 of "
_CODE = ("rrf", "flows", "infra")
FAULTS = {
    "promotion": "registry_cases:Promotion",
    "rollback": "registry_cases:Rollback",
    "registration": "registry_cases:Registration",
    "training": "work_cases:Training",
    "training-from-images": "work_cases:ImageTraining",
    "evaluation": "work_cases:Evaluation",
    "canary": "canary:Serving",
    "log-upload": "work_cases:LogUpload",
    "log-ingest": "work_cases:Ingest",
    "dvc-push": "work_cases:Push",
    "dvc-pull": "work_cases:Pull",
    "lost-outcomes": "messages:LostOutcomes",
    "forged-outcomes": "messages:ForgedMessages",
    "forged-logs": "forgeries:ForgedLogs",
    "forged-ledger": "forgeries:ForgedLedger",
    "stolen-key": "stolen_keys:StolenKey",
    "two-sites": "sites:TwoSites",
    "two-sites-postgres": "sites:OnPostgres",
    "database-restart": "sites:Restart",
    "clock-skew-approvals": "clocks:SkewedApprovals",
    "clock-skew-outcomes": "clocks:SkewedOutcomes",
    "worker": "flow_services:WorkerKilled",
    "server": "flow_services:ServerKilled",
    "full-disk-promotion": "full_disk:PromotionOnFullDisk",
    "full-disk-registration": "full_disk:RegistrationOnFullDisk",
    "full-disk-training": "full_disk:TrainingOnFullDisk",
    "full-disk-log-upload": "full_disk:UploadOnFullDisk",
    "full-disk-log-ingest": "full_disk:IngestOnFullDisk",
}
"""Name on the command line -> the class below `tests.faults` that says what is done."""


def measure(name: str, bench: Bench) -> list[dict]:
    """The row of one fault."""
    module, _, kind = FAULTS[name].partition(":")
    case = getattr(importlib.import_module(f"tests.faults.{module}"), kind)()
    seeds, file = range(bench.size(bench.options.seeds, 2)), _file(case)
    known = {each.seed: each for each in _known(file)} if bench.saves else {}
    missing = [seed for seed in seeds if seed not in known]
    if missing:
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.closing(case.trial(Path(scratch))) as trial,
        ):
            for seed in missing:
                known[seed] = trial.survive(seed)
                print(json.dumps(dataclasses.asdict(known[seed])), flush=True)
                if bench.saves:
                    _append(file, known[seed])
    survivals = [known[seed] for seed in seeds]
    row = bench.number(
        f"fault_{name.replace('-', '_')}",
        sum(not each.problem for each in survivals),
        f"of {len(survivals)} runs",
        seeds=list(seeds),
    )
    row |= {
        "fault": case.fault,
        "faults": sum(each.kills for each in survivals),
        "undisturbed_s": round(survivals[0].usual_s, 2),
        "cpu_s": round(sum(each.cpu_s for each in survivals)),
    }
    if bench.saves:
        record.save(FILE, [row])
        record.save("mlops", totals(json.loads((record.RESULTS / f"{FILE}.json").read_text())))
    return [row]


def totals(rows: Sequence[dict]) -> list[dict]:
    """The sums over the rows of kills."""
    kills = [row for row in rows if row["fault"].startswith(_KILLS)]
    words = {"command": "python -m benchmarks.faults", "seeds": range(SEEDS)}
    sums = {
        "kill_runs_survived": sum(row["value"] for row in kills),
        "kill_runs_total": sum(len(row["seeds"]) for row in kills),
    }
    facts = {"kills": sum(row["faults"] for row in kills)}
    return [record.number(id, value, "runs", **words) | facts for id, value in sums.items()]


def _file(case: Harmed) -> Path:
    """Where is kept what became of the seeds of a case, with this code of ours and of the case."""
    paths = [p for place in _CODE for p in (record.ROOT / place).rglob("*.[pc]*") if p.is_file()]
    paths = [path for path in paths if path.suffix in (".py", ".c")]
    kinds = [kind for kind in type(case).__mro__ if kind.__module__.startswith("tests.")]
    files = {*paths, *(Path(inspect.getfile(kind)) for kind in kinds)}
    digest = atomic.digest_of(
        {path.relative_to(record.ROOT).as_posix(): atomic.sha256(path) for path in files}
    )
    return workspace.state() / "faults" / f"{type(case).__name__}-{digest[:16]}.jsonl"


def _known(file: Path) -> list[Survival]:
    lines = file.read_text().splitlines() if file.is_file() else []
    return [Survival(**json.loads(line)) for line in lines]


def _append(file: Path, survival: Survival) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        stream.write(json.dumps(dataclasses.asdict(survival)) + "\n")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=SEEDS)


if __name__ == "__main__":
    os.environ.setdefault("RRF_HOME", str(record.ROOT))
    for name in ("MLFLOW_TRACKING_URI", "RRF_ARTIFACT_ROOT"):  # no store of somebody's
        os.environ.pop(name, None)
    harness.main(
        "faults",
        __doc__,
        {name: functools.partial(measure, name) for name in FAULTS},
        add_options=_options,
    )
