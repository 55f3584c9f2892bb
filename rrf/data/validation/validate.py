"""Is this dataset good enough to train on? Runs all checks and writes the answer down.

    source in order? files readable? -> tables -> parts agree? videos, dimensions, leakage?
        -> Great Expectations on frames, on episodes
        -> validation.json (the answer, with the digest of exactly the content judged),
        validation.html, Great Expectations' pages in data_docs/, and two tables for `dvc plots`

episode_lengths.json: [{"frames": where a bin begins, "episodes": how many are in it}, ...]
dimensions.json: [{"dimension": "action.dx", "min", "q01", "mean", "q99", "max"}, ...]

The same dataset gives the same validation.json, unless it drifted from the version published
before. Only a passing one lets `publish` go on.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.data.conversion.checks_cfg import ChecksCfg, LimitsCfg
from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.dataset import parquet
from rrf.data.dataset.stats import describe
from rrf.data.files import content_digest
from rrf.data.remedies import again
from rrf.data.schema import ACTION, STATE
from rrf.data.validation.alignment import SETTLED, alignment_findings
from rrf.data.validation.checks import CheckResult, Finding, result, severities
from rrf.data.validation.checks import results as check_results
from rrf.data.validation.data_docs import open_context, remove_site
from rrf.data.validation.dimension_checks import check_dimensions
from rrf.data.validation.expectations import FRAME_KEYS, episode_suite, frame_suite, run_suite
from rrf.data.validation.integrity import check_files, check_tables, hold_previous_error
from rrf.data.validation.tables import Tables, dimension_columns, read_tables
from rrf.data.validation.validation_report import render_html
from rrf.data.validation.video_checks import check_pace

JSON_NAME = "validation.json"
HTML_NAME = "validation.html"
DATA_DOCS = "data_docs"
_RECORDED = {
    "timestamps": "time goes on evenly in every recording",
    "frame_order": "the rows of every recording are in the order of frames",
    "source_statistics": "every recording agrees with its own statistics",
}
MAX_SHOWN = 20  # instructions with pictures in the report
OnStage = Callable[[int, int, str], None]  # done, total, what comes next


@dataclasses.dataclass(frozen=True)
class ValidationReport:
    """What validation found."""

    name: str
    digest: str  # of the content judged, see `content_digest`
    facts: dict
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return all(check.status in ("pass", "warn") for check in self.checks)

    def to_dict(self) -> dict:
        """Plain data, the content of validation.json."""
        counts = {
            status: sum(check.status == status for check in self.checks)
            for status in ("pass", "warn", "fail", "crashed")
        }
        return {
            "name": self.name,
            "passed": self.passed,
            "digest": self.digest,
            "counts": counts,
            "facts": self.facts,
            "checks": [dataclasses.asdict(check) for check in self.checks],
        }


def validate(
    name: str,
    root: str | Path,
    cfg: ChecksCfg,
    out: str | Path,
    on_stage: OnStage = lambda done, total, what: None,
    published: str | Path | None = None,
) -> ValidationReport:
    """Check the dataset at `root` and write `validation.json`, `validation.html`, `data_docs/` and
    the tables of `plot_tables` to `out`.

    Args:
        name: The dataset's name.
        root: The dataset's directory.
        cfg: How strict to be.
        out: Directory of the reports.
        on_stage: Called before each of the stages.
        published: Where the version before lies, to compare statistics with.

    Raises:
        ValueError: If there is no dataset at `root`, or `cfg` names an unknown check. A bad dataset
            raises nothing: look at `passed`.
    """
    root, levels = Path(root), severities(cfg.severity)
    if not root.is_dir():
        raise ValueError(f"no dataset at {root}; {again(root)}")
    digest = content_digest(root)  # before the rest: content that comes later was not judged
    on_stage(0, 4, "reading files")
    results = _check_source(root, levels) + check_files(root, levels)
    tables, facts = None, {}
    if all(r.status in ("pass", "warn") for r in results):
        on_stage(1, 4, "decoding images")
        try:
            tables = read_tables(root, sample_rows(root))
        except ValueError as error:
            finding = Finding("tables", str(error))  # no severity lets what was not seen pass
            results.append(CheckResult("features", "the tables can be read", "fail", 1, (finding,)))
    results += _check_recorded(root, levels)
    remove_site(Path(out) / DATA_DOCS)
    if tables is not None:
        facts = _facts(tables)
        results += check_tables(tables, levels, cfg)
        results += _check_alignment(root, tables, levels, cfg.limits)
        results += check_pace(root, tables, levels, cfg.limits)
        before = Path(published) if published is not None else None
        results += check_dimensions(tables, levels, cfg.limits, before)
        results += _run_suites(tables, cfg, levels, Path(out) / DATA_DOCS, on_stage)
    report = ValidationReport(name, digest, facts, tuple(results))
    atomic.write_json(Path(out) / JSON_NAME, report.to_dict())
    page = render_html(report.to_dict(), tables, DATA_DOCS if tables is not None else None)
    atomic.write_text(Path(out) / HTML_NAME, page)
    for file_name, rows in plot_tables(tables).items():
        atomic.write_json(Path(out) / file_name, rows)
    on_stage(4, 4, "done")
    return report


def read_report(out: str | Path) -> dict:
    """The content of `validation.json`.

    Raises ValueError with the command that makes it if there is none.
    """
    path = Path(out) / JSON_NAME
    if not path.is_file():
        raise ValueError(f"{path} is missing: the dataset was not validated; {again(path)}")
    try:
        return atomic.parse_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {again(path)}") from error


def sample_rows(root: str | Path) -> list[int]:
    """Rows shown in the report: five frames spread over the first episode of each instruction, of
    the first `MAX_SHOWN`.
    """
    rows, seen = [], set()
    for episode in parquet.read_episodes(root).to_dict("records"):
        instructions = tuple(episode["tasks"])
        if len(seen) < MAX_SHOWN and instructions not in seen and episode["length"] > 0:
            seen.add(instructions)
            last = episode["dataset_to_index"] - 1
            rows += np.linspace(episode["dataset_from_index"], last, 5).round().astype(int).tolist()
    return rows


def _check_source(root: Path, levels: dict[str, str]) -> list[CheckResult]:
    """What conversion found odd about the recordings."""
    if levels["source"] == "off":
        return []
    try:
        record = read_conversion(root) or {"warnings": []}
        findings = [Finding("recordings", str(warning)) for warning in record["warnings"]]
    except ValueError as error:
        findings = [Finding("recordings", str(error))]
    return [result("source", "nothing was odd about the recordings", findings, levels)]


def _check_recorded(root: Path, levels: dict[str, str]) -> list[CheckResult]:
    """What the recordings tell that the dataset does not: whether an episode ends in the middle,
    whether rows were in order, and whether they agree with the recordings' own statistics.
    """
    try:
        record = read_conversion(root) or {}
    except ValueError:  # `_check_source` says so
        return []
    checks = []
    if "cut_episodes" in record:
        value = "its last step leads to the first observation of the next episode"
        findings = [Finding("end", value, episode=number) for number in record["cut_episodes"]]
        checks.append(("cut_episodes", "no episode is cut in the middle", findings))
    if "problems" in record:
        for check, title in _RECORDED.items():
            found = [problem for problem in record["problems"] if problem["check"] == check]
            findings = [Finding("recording", str(p["value"]), p["episode"]) for p in found]
            checks.append((check, title, findings))
    return check_results(checks, levels)


def _check_alignment(
    root: Path, tables: Tables, levels: dict[str, str], limits: LimitsCfg
) -> list[CheckResult]:
    """Whether states precede their actions, where the layout of the recordings does not say so."""
    try:
        record = read_conversion(root) or {}
    except ValueError:  # `_check_source` says so
        record = {}
    is_settled = record.get("format") in SETTLED and "unsettled" not in record
    if levels["alignment"] == "off" or is_settled:
        return []
    title = "the state of a frame was recorded before its action"
    findings = alignment_findings(tables, limits.max_late_ratio)
    return [result("alignment", title, findings, levels)]


def _run_suites(
    tables: Tables, cfg: ChecksCfg, levels: dict[str, str], site: Path, on_stage: OnStage
) -> list[CheckResult]:
    with open_context(site) as context:
        on_stage(2, 4, "expectations on frames")
        suite = frame_suite(tables.schema, cfg.limits, len(tables.tasks))
        results = run_suite(context, "frames", suite, tables.frames, FRAME_KEYS, levels)
        on_stage(3, 4, "expectations on episodes")
        suite = episode_suite(tables.schema, cfg.limits)
        return results + run_suite(
            context, "episodes", suite, tables.episodes, FRAME_KEYS[:1], levels
        )


def _facts(tables: Tables) -> dict:
    lengths = tables.episodes["num_rows"].dropna().to_numpy()
    hold = hold_previous_error(tables)
    facts = {
        "frames": len(tables.frames),
        "episodes": len(tables.episodes),
        "instructions": len(tables.tasks),
        "fps": tables.schema.fps,
        "cameras": list(tables.schema.cameras),
        "image_size": list(tables.schema.image_size),
        "state_dimensions": tables.vectors[STATE].shape[1],
        "action_dimensions": tables.vectors[ACTION].shape[1],
        "hold_previous_error_std": None if hold is None else round(hold, 6),
    }
    if len(lengths):
        facts["episode_length"] = [
            int(lengths.min()),
            float(np.median(lengths)),
            int(lengths.max()),
        ]
    if tables.schema.has_success and "ends_in_success" in tables.episodes:
        ends = tables.episodes["ends_in_success"].dropna().to_numpy(bool)
        facts["success_rate"] = round(float(ends.mean()), 6)
    return facts


_MAX_BINS = 40
_STATISTICS = ("min", "q01", "mean", "q99", "max")


def plot_tables(tables: Tables | None) -> dict[str, list[dict]]:
    """File name -> rows; no rows for a dataset that could not be read."""
    lengths, dimensions = [], []
    if tables is not None:
        lengths = episode_lengths(tables.episodes["num_rows"].dropna().to_numpy(int))
        dimensions = _dimensions(tables)
    return {"episode_lengths.json": lengths, "dimensions.json": dimensions}


def episode_lengths(lengths: np.ndarray) -> list[dict]:
    """How many episodes are how long, in at most 40 bins of the same whole width."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // _MAX_BINS)
    starts = range(low, high + 1, width)
    counts = np.bincount((lengths - low) // width)
    return [
        {"frames": start, "episodes": int(count)}
        for start, count in zip(starts, counts, strict=True)
    ]


def _dimensions(tables: Tables) -> list[dict]:
    rows = []
    for key, names in dimension_columns(tables.schema).items():
        stats = describe(tables.vectors[key])
        for index, name in enumerate(names):
            values = {kind: float(stats[kind][index]) for kind in _STATISTICS}
            rows.append({"dimension": name} | {k: _rounded(v) for k, v in values.items()})
    return rows


def _rounded(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
