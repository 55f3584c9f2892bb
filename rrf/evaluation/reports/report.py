"""The evaluation report: one self-contained HTML file for people who decide about a policy.

It is built from the files of an evaluation directory (evaluation.json, verdict-*.json, videos/,
baseline-*.json) and from what only the caller knows: the lineage, the training curves and the
champion's evaluation.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from markupsafe import Markup

from rrf import __version__, atomic
from rrf.config import readable
from rrf.evaluation.gates.regression import WorseTask, worse_tasks
from rrf.evaluation.gates.verdicts import verdicts_of
from rrf.evaluation.intervals import mcnemar_p, paired_difference
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.reports.charts import interval_bar, success_chart
from rrf.evaluation.results import REPORT, Evaluation, Rate, wins_and_losses
from rrf.evaluation.serving_profile import METRICS
from rrf.lineage import Lineage
from rrf.pages.charts import Curve, curves_chart
from rrf.pages.page import data_url, render

BASELINE = "baseline-*.json"
_NOT_SHOWN = ("train/cpu_s", "train/samples_per_s")
_FIRST_CHARTS = (
    *("rollout/return", "rollout/length", "policy/kl", "loss/total", "validation/success"),
    *("validation/success by task", "env/success_once", "env/success_once by task"),
    *("env/episode_len", "actor/approx_kl"),
)
_BY_TASK = " by task"
_DATASET = (
    *("dataset", "dataset_md5", "raw_md5", "num_episodes", "num_frames"),
    *("validation", "validation_digest"),
)
_CODE = ("git_revision", "git_dirty", "source_digest", "lock_hash")
_Rows = list[list[str]]  # of a table: the first cell is text, the others are numbers


def write_report(
    folder: str | Path,
    lineage: Lineage | None = None,
    curves: Mapping[str, Curve] | None = None,
    champion: Evaluation | None = None,
    config: Mapping | None = None,
    subject: str | None = None,
    links: Mapping[str, str] | None = None,
    keep: bool = False,
) -> Path:
    """Write `<folder>/report.html` from the evaluation in `folder`; returns its path.

    A page that already shows all of this stays, with the links that it has: its charts take two
    seconds of CPU.

    Args:
        folder: Evaluation directory written by `rrf eval`. It also has a verdict-*.json of each
            gate that has judged the evaluation.
        lineage: What the policy depends on.
        curves: Metrics of the training run, name -> (step, value) points.
        champion: The champion's evaluation under the same protocol.
        config: The resolved config of the training run.
        subject: What the report is about, e.g. a version of a model or a candidate for it. By
            default the policy's label.
        links: Links to other pages, title -> address.
        keep: Let a page stay that shows this evaluation, these verdicts and baselines, whatever
            else it shows: for who is going to write it again.
    """
    folder = Path(folder)
    evaluation = Evaluation.load(folder)
    verdicts = list(verdicts_of(folder, evaluation.digest).values())
    others = [] if champion is None else [("champion", champion)]
    baselines = readable(sorted(folder.glob(BASELINE)), Evaluation.load)
    others += [(_title(path.stem), baseline) for path, baseline in baselines.items()]
    worse = [(title, tasks) for title, e in others if (tasks := worse_tasks(evaluation, e))]
    lineage, videos = lineage or Lineage(), _videos(evaluation, folder)
    judged = (
        __version__,
        evaluation.to_dict(),
        [verdict.to_dict() for verdict in verdicts],
        {path.name: baseline.digest for path, baseline in baselines.items()},
        videos,
    )
    shown = (
        judged,
        subject,
        champion and champion.digest,
        lineage.to_dict(),
        config,
        {name: list(points) for name, points in (curves or {}).items()},
        sorted(links or ()),
    )
    marks = [f"<!-- {hashlib.sha256(repr(s).encode()).hexdigest()} -->\n" for s in (shown, judged)]
    if _ends_with(folder / REPORT, marks[1] if keep else "".join(marks)):
        return folder / REPORT
    page = render(
        "evaluation/reports/report.html",
        title=f"Evaluation of {subject or evaluation.policy or evaluation.checkpoint_digest[:12]}",
        links=links or {},
        evaluation=evaluation,
        headline=_headline(evaluation),
        interval=interval_bar(evaluation.overall),
        worse=[(_comparison(title, tasks), tasks) for title, tasks in worse],
        num_worse=len({worse_task.task for _, tasks in worse for worse_task in tasks}),
        verdicts=verdicts,
        passed_gates=[verdict.gate for verdict in verdicts if verdict.passed],
        tasks_chart=success_chart(evaluation.per_task, {t: e.per_task for t, e in others}),
        groups=_groups(evaluation),
        worst_group=evaluation.worst_group,
        tasks=_tasks(evaluation),
        metrics=_metrics(evaluation) if evaluation.mean_metrics() else None,
        served=_served(evaluation),
        comparisons=[_paired(evaluation, title, other) for title, other in others],
        videos=videos,
        charts=_charts(curves or {}),
        lineage=_lineage(evaluation, lineage),
        missing=lineage.missing,
        protocol={"hash": evaluation.protocol_hash, "evaluation digest": evaluation.digest}
        | {key: _as_text(value) for key, value in evaluation.protocol.items() if key != "type"},
        config=config and yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
    )
    atomic.write_text(folder / REPORT, "\n".join([page, "".join(marks)]))
    return folder / REPORT


def _ends_with(file: Path, mark: str) -> bool:
    return file.is_file() and file.read_bytes().endswith(mark.encode())


def _headline(evaluation: Evaluation) -> dict[str, str]:
    rate, timings = evaluation.overall, evaluation.timings
    means = parse_protocol(evaluation.protocol).with_bounds
    bounds = {metric: evaluation.bounds_of(metric, means[metric]) for metric in means}
    return {
        f"mean {metric.replace('_', ' ')} of {means[metric]:g} [95 % bounds]": (
            f"{mean:.2f} [{low:.2f}, {high:.2f}]"
        )
        for metric, (mean, low, high) in bounds.items()
    } | {
        "episodes": str(rate.episodes),
        "solved": str(rate.successes),
        "tasks": str(len(evaluation.per_task)),
        "episodes per second": f"{timings.get('episodes_per_s', 0):.2f}",
        "wall time": f"{timings.get('wall_s', 0):.0f} s",
        "CPU time": f"{timings.get('cpu_s', 0):.0f} s",
    }


def _comparison(title: str, tasks: Sequence[WorseTask]) -> str:
    """The beginning of the note on the tasks that got worse."""
    count = "one task is" if len(tasks) == 1 else f"{len(tasks)} tasks are"
    return f"Compared with {title}, {count} worse:"


def _tasks(evaluation: Evaluation) -> tuple[list[str], _Rows, list[str]]:
    """Head, rows and last row of the table of tasks."""
    rates = evaluation.per_task
    head = ["task", "solved", "success", "95 % low", "95 % high"]
    rows = [[task, *_numbers(rate)] for task, rate in rates.items()]
    total = ["all tasks", *_numbers(evaluation.overall)]
    if not parse_protocol(evaluation.protocol).metrics:
        # those of a class of protocols are of episodes that do not end when they succeed
        head.append("mean steps to success")
        total.append("")
        for row, task in zip(rows, rates, strict=True):
            steps = [e.steps for e in evaluation.episodes if e.task == task and e.success]
            row.append(f"{sum(steps) / len(steps):.1f}" if steps else "–")
    return head, rows, total


def _groups(evaluation: Evaluation) -> tuple[list[str], _Rows] | None:
    """Head and rows of the table of groups of tasks, if the protocol has some."""
    if not (rates := evaluation.per_group):
        return None
    members = evaluation.protocol["groups"]
    head = ["group", "tasks", "solved", "success", "95 % low", "95 % high"]
    return head, [[title, str(len(members[title])), *_numbers(r)] for title, r in rates.items()]


def _metrics(evaluation: Evaluation) -> dict:
    """Head, rows and last row of the table of mean metrics, and the rule for a success."""
    overall, protocol = evaluation.mean_metrics(), parse_protocol(evaluation.protocol)
    units = {name: protocol.measures[name] for name in overall}
    titles = [f"{name.replace('_', ' ')} ({unit})" for name, unit in units.items()]

    def row(title: str, means: Mapping[str, float]) -> list[str]:
        return [title, *(f"{means[name]:.4g}" if name in means else "–" for name in overall)]

    return {
        "head": ["task", *(title.removesuffix(" ()") for title in titles)],
        "rows": [row(task, evaluation.mean_metrics(task)) for task in evaluation.per_task],
        "total": row("all tasks", overall),
        "success_rule": protocol.success_rule,
    }


def _served(evaluation: Evaluation) -> dict[str, str]:
    """What was measured of the policy as it is served, title -> number and unit."""
    if not (profile := evaluation.profile):
        return {}
    numbers = {
        name.replace("_", " "): f"{value:.4g} ({METRICS[name]})"
        for name, value in profile.metrics.items()
        if name in METRICS
    }
    return {
        "hardware": f"{profile.hardware}; device {profile.device}",
        "requests": f"{profile.num_requests}, one at a time, {profile.created}",
    } | numbers


def _paired(evaluation: Evaluation, title: str, other: Evaluation) -> list[str]:
    """A row of the comparison on the same initial states."""
    pairs = [e for e in evaluation.episodes if e.initial_state in other.successes]
    wins, losses = wins_and_losses(pairs, other.successes)
    difference, low, high = paired_difference(wins, losses, len(pairs))
    changes = [f"{change:+.1%}" for change in (difference, low, high)]
    rate, p_value = other.overall.rate, mcnemar_p(wins, losses)
    return [title, f"{rate:.1%}", str(wins), str(losses), *changes, f"{p_value:.2g}"]


def _videos(evaluation: Evaluation, folder: Path) -> list[dict]:
    """The videos themselves, not links to them. Raises ValueError for a path out of `folder`."""
    videos, where = [], f"a video of the evaluation in {folder}"
    for entry in evaluation.videos:
        clip = atomic.inside(folder, entry["path"], where)
        if not clip.is_file():
            continue
        poster = clip.with_suffix(".jpg").relative_to(folder).as_posix()
        poster = atomic.inside(folder, poster, where)
        still = data_url("image/jpeg", poster.read_bytes()) if poster.is_file() else None
        videos.append(entry | {"clip": data_url("video/mp4", clip.read_bytes()), "poster": still})
    return videos


def _charts(curves: Mapping[str, Curve]) -> list[Markup]:
    """One chart per loss with its validation curve, then one chart per group of other metrics."""
    groups: dict[str, dict[str, Curve]] = {}
    for name, curve in curves.items():
        if name not in _NOT_SHOWN and len(curve) > 1:
            chart = _chart_of(name, curves)
            label = name.rpartition("/")[2] if chart.endswith(_BY_TASK) else name
            groups.setdefault(chart, {})[label] = curve
    places = {title: place for place, title in enumerate(_FIRST_CHARTS)}
    order = sorted(groups, key=lambda title: (places.get(title, len(places)), title))
    return [curves_chart(groups[title], title) for title in order]


def _chart_of(name: str, curves: Mapping[str, Curve]) -> str:
    """The title of the chart that shows a curve.

    A validation loss shares the chart of its loss; the tasks of a metric share one chart.
    """
    kind, _, rest = name.partition("/")
    if kind == "validation" and f"loss/{rest}" in curves:
        return f"loss/{rest}"
    group, _, _ = name.rpartition("/")
    return f"{group}{_BY_TASK}" if "/" in group else name


def _lineage(evaluation: Evaluation, lineage: Lineage) -> dict[str, str]:
    facts, keys = lineage.facts(), _CODE if lineage.environment else (*_DATASET, *_CODE)
    rows = {"checkpoint_digest": evaluation.checkpoint_digest}
    rows |= {key: _as_text(facts.get(key)) for key in keys}
    return rows | {key: _as_text(facts[key]) for key in facts if key not in (*keys, "missing")}


def _numbers(rate: Rate) -> list[str]:
    bounds = (f"{share:.1%}" for share in (rate.rate, rate.low, rate.high))
    return [f"{rate.successes}/{rate.episodes}", *bounds]


def _title(label: str) -> str:
    return label.removeprefix("baseline-").replace("-", " ")


def _as_text(value) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return str(value)
