"""The speed of short trainings from night to night, as runs of the MLflow experiment
`nightly-speeds`.

A speed is compared with that of the first night of the same preset and overrides on the same kind
of processor. It is in steps per CPU second, so that it does not fall because others use the
machine, and the fastest of some trainings counts.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rrf import code_digest, workspace
from rrf.evaluation.nightly import matrix
from rrf.evaluation.nightly.matrix import SpeedCfg
from rrf.mlflow_store import store
from rrf.registry import lineage_sources

if TYPE_CHECKING:
    from mlflow.entities import Run

EXPERIMENT = "nightly-speeds"
_TAG = "speed."
_PAGE = 1000


@dataclasses.dataclass(frozen=True)
class Speed:
    """A night of one training."""

    key: str
    time: str  # ISO 8601, UTC
    processor: str
    steps_per_cpu_s: float
    commit: str
    run_id: str


def ratio(cfg: SpeedCfg, steps_per_cpu_s: float) -> float:
    """A speed as a share of that of the first night on this kind of processor; 1 without one."""
    processor = code_digest.surroundings()["processor"]
    earlier = [speed for speed in history(cfg.key) if speed.processor == processor]
    since = cfg.since.isoformat() if cfg.since else ""
    first = next((speed for speed in earlier if speed.time[:10] >= since), None)
    return steps_per_cpu_s / first.steps_per_cpu_s if first else 1.0


def record(cfg: SpeedCfg, steps_per_cpu_s: float, time: str) -> tuple[Speed, float]:
    """Store a night; returns it, and its `ratio`."""
    share, client = ratio(cfg, steps_per_cpu_s), store.connect()
    commit, _ = lineage_sources.commit(workspace.home())
    processor = code_digest.surroundings()["processor"]
    facts = {"key": cfg.key, "time": time, "processor": processor, "commit": commit or ""}
    run = client.create_run(
        store.experiment_id(client, EXPERIMENT),
        run_name=f"{cfg.preset}, {time}",
        tags={f"{_TAG}{name}": value for name, value in facts.items()},
    )
    numbers = {"steps_per_cpu_s": steps_per_cpu_s, "ratio": share}
    store.log_numbers(client, run.info.run_id, numbers)
    client.set_terminated(run.info.run_id, "FINISHED")
    return Speed(**facts, steps_per_cpu_s=steps_per_cpu_s, run_id=run.info.run_id), share


def history(key: str | None = None) -> list[Speed]:
    """The nights of a training, or of all, oldest first."""
    client = store.connect()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return []
    runs, token = [], ""
    while token is not None:
        page = client.search_runs(
            [experiment.experiment_id],
            "attributes.status = 'FINISHED'",
            max_results=_PAGE,
            page_token=token or None,
        )
        runs += page
        token = page.token or None
    speeds = [_speed(run) for run in runs]
    return sorted((s for s in speeds if key in (None, s.key)), key=lambda s: (s.key, s.time))


@dataclasses.dataclass(frozen=True)
class Compared:
    """A night beside the first one like it."""

    night: Speed
    share: float
    """Of the first night's speed."""
    is_low: bool
    """Whether that is less than `configs/nightly.yaml` allows."""
    fell: str
    """A line if the night before was not low; else ""."""


def compared(nights: Sequence[Speed]) -> list[Compared]:
    """Each night beside the first one like it.

    Args:
        nights: Of `history`. Those before and after the day `since` are told apart.
    """
    cfgs = {cfg.key: cfg for cfg in (matrix.load() or matrix.MatrixCfg()).speeds}
    first: dict[tuple, Speed] = {}
    last: dict[tuple, tuple[Speed, float]] = {}
    told = []
    for night in nights:
        cfg = cfgs.get(night.key)
        since = cfg.since.isoformat() if cfg and cfg.since else ""
        like = (night.key, night.processor, night.time[:10] >= since)
        share = night.steps_per_cpu_s / first.setdefault(like, night).steps_per_cpu_s
        least = cfg.least if cfg else SpeedCfg.least
        before, its_share = last.get(like, (night, share))
        fell, is_low = "", share < least
        if is_low and its_share >= least:
            fell = (
                f"{night.key} fell to {share:.2f} of its first speed between the nights of "
                f"{before.time} and {night.time}; commits {before.commit[:12]}..{night.commit[:12]}"
            )
        last[like] = (night, share)
        told.append(Compared(night, share, is_low, fell))
    return told


def now() -> str:
    """The time of a night that begins now."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ")


def _speed(run: "Run") -> Speed:
    facts = {
        name: run.data.tags[f"{_TAG}{name}"] for name in ("key", "time", "processor", "commit")
    }
    steps = run.data.metrics["steps_per_cpu_s"]
    return Speed(**facts, steps_per_cpu_s=steps, run_id=run.info.run_id)
