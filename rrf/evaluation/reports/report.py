"""The evaluation report: one self-contained HTML file for people who decide about a policy.

It is built from the files of an evaluation directory (evaluation.json, verdict-*.json, videos/,
baseline-*.json) and from what only the caller knows: the lineage, the training curves and the
champion's evaluation.
"""

import base64
from collections.abc import Mapping
from pathlib import Path

import yaml

from rrf import atomic
from rrf.evaluation.gates.regression import worse_tasks
from rrf.evaluation.gates.verdicts import Verdict, verdicts_of
from rrf.evaluation.intervals import mcnemar_p, paired_difference
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.reports.charts import Curve, curves_chart, interval_bar, success_chart
from rrf.evaluation.reports.page import badge, escape, key_table, link, page, section, table
from rrf.evaluation.results import REPORT, Evaluation, wins_and_losses
from rrf.lineage import Lineage

BASELINE = "baseline-*.json"
_NOT_SHOWN = ("train/cpu_s", "train/samples_per_s")
_FIRST_CHARTS = (
    *("rollout/return", "rollout/length", "policy/kl", "loss/total", "validation/success"),
    *("validation/success by task", "env/success_once", "env/success_once by task"),
    *("env/episode_len", "actor/approx_kl"),
)
_OPEN_CHARTS = 8
_BY_TASK = " by task"
_DATASET = (
    *("dataset", "dataset_md5", "raw_md5", "num_episodes", "num_frames"),
    *("validation", "validation_digest"),
)
_CODE = ("git_revision", "git_dirty", "source_digest", "lock_hash")


def write_report(
    folder: str | Path,
    lineage: Lineage | None = None,
    curves: Mapping[str, Curve] | None = None,
    champion: Evaluation | None = None,
    config: Mapping | None = None,
    subject: str | None = None,
    links: Mapping[str, str] | None = None,
) -> Path:
    """Write `<folder>/report.html` from the evaluation in `folder`; returns its path.

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
    """
    folder = Path(folder)
    evaluation = Evaluation.load(folder)
    verdicts = list(verdicts_of(folder, evaluation.digest).values())
    others = {} if champion is None else {"champion": champion}
    others |= {path.stem: Evaluation.load(path) for path in sorted(folder.glob(BASELINE))}
    sections = [_headline(evaluation, verdicts, others)]
    sections += [*map(_gate, verdicts), _tasks(evaluation, others)]
    if evaluation.mean_metrics():
        sections.append(_metrics(evaluation))
    if others:
        sections.append(_comparisons(evaluation, others))
    if evaluation.videos:
        sections.append(_videos(evaluation, folder))
    if curves:
        sections.append(_curves(curves))
    sections += [_lineage(evaluation, lineage or Lineage()), _protocol(evaluation)]
    if config:
        sections.append(_config(config))
    subject = subject or evaluation.policy or evaluation.checkpoint_digest[:12]
    leads = " · ".join(link(title, address) for title, address in (links or {}).items())
    header = (
        f"<div><h1>Evaluation of {escape(subject)}</h1>"
        f'<div class="soft">protocol {escape(str(evaluation.protocol["name"]))} · '
        f"{escape(evaluation.created)}</div>"
        f"<div>{leads}</div></div><div>{' '.join(badge(v.gate, v.outcome) for v in verdicts)}</div>"
    )
    footer = (
        "Bounds are two-sided Wilson 95 % score intervals; the gate's own bounds are stated with "
        "it. "
        "Videos are replays of the evaluated episodes, action by action."
    )
    path = folder / REPORT
    atomic.write_text(path, page(f"Evaluation of {subject}", header, sections, footer))
    return path


def _headline(
    evaluation: Evaluation, verdicts: list[Verdict], others: Mapping[str, Evaluation]
) -> str:
    rate = evaluation.overall
    facts = {
        "episodes": str(rate.episodes),
        "solved": str(rate.successes),
        "tasks": str(len(evaluation.per_task)),
        "episodes per second": f"{evaluation.timings.get('episodes_per_s', 0):.2f}",
        "wall time": f"{evaluation.timings.get('wall_s', 0):.0f} s",
        "CPU time": f"{evaluation.timings.get('cpu_s', 0):.0f} s",
    }
    cells = "".join(
        f'<div><b>{value}</b><span class="soft">{name}</span></div>'
        for name, value in facts.items()
    )
    return (
        '<section><div class="headline">'
        f'<div><div class="big">{rate.rate:.1%}</div>'
        '<div class="soft">success, all tasks</div></div>'
        f"<div>{interval_bar(rate)}</div></div>{_worse(evaluation, verdicts, others)}"
        f'<div class="facts">{cells}</div></section>'
    )


def _worse(
    evaluation: Evaluation, verdicts: list[Verdict], others: Mapping[str, Evaluation]
) -> str:
    """A note on the tasks that got worse, shown even if a gate passes."""
    passed = [verdict.gate for verdict in verdicts if verdict.passed]
    lines, names = [], set()
    for label, other in others.items():
        if worse := worse_tasks(evaluation, other):
            names |= {one.task for one in worse}
            tasks = "; ".join(map(str, worse))
            count = "one task is" if len(worse) == 1 else f"{len(worse)} tasks are"
            told = f"Compared with {_title(label)}, {count} worse:"
            lines.append(f"<b>{escape(told)}</b> {escape(tasks)}.")
    if lines and passed:
        what = "a task" if len(names) == 1 else f"{len(names)} tasks"
        lines.insert(0, f"Gate {escape(', '.join(passed))} passes although {what} got worse.")
    return f'<p class="hold worse">{"<br>".join(lines)}</p>' if lines else ""


def _gate(verdict: Verdict) -> str:
    items = "".join(
        f'<li class="{check.outcome}"><span>{check.outcome}</span>{escape(check.reason)}</li>'
        for check in sorted(verdict.checks, key=lambda c: ("fail", "hold", "pass").index(c.outcome))
    )
    against = f"version {verdict.champion_version}" if verdict.champion_digest else "none"
    note = f"Look {verdict.round + 1} of {verdict.rounds}; champion: {against}."
    if verdict.more_episodes_per_task:
        note += f" It asks for {verdict.more_episodes_per_task} more episodes per task."
    return section(
        f"Gate {verdict.gate}: {verdict.outcome}",
        f'<ul class="reasons">{items}</ul><p class="soft">{escape(note)}</p>',
    )


def _tasks(evaluation: Evaluation, others: Mapping[str, Evaluation]) -> str:
    rates = evaluation.per_task
    marks = {_title(label): other.per_task for label, other in others.items()}
    head = ["task", "solved", "success", "95 % low", "95 % high"]
    rows = [[task, *_numbers(rate)] for task, rate in rates.items()]
    total = ["all tasks", *_numbers(evaluation.overall)]
    if not evaluation.mean_metrics():  # with metrics, episodes do not end when they succeed
        head.append("mean steps to success")
        total.append("")
        for row, task in zip(rows, rates, strict=True):
            steps = [e.steps for e in evaluation.episodes if e.task == task and e.success]
            row.append(f"{sum(steps) / len(steps):.1f}" if steps else "–")
    return section(
        "Success by task",
        success_chart(rates, marks),
        table(head, rows, total),
    )


def _metrics(evaluation: Evaluation) -> str:
    """The mean metrics of each task, and the rule for a success."""
    overall, protocol = evaluation.mean_metrics(), parse_protocol(evaluation.protocol)
    units = {name: protocol.metrics[name] for name in overall}
    head = [
        "task",
        *(f"{_words(name)} ({unit})".removesuffix(" ()") for name, unit in units.items()),
    ]

    def row(title: str, means: Mapping[str, float]) -> list[str]:
        return [title, *(f"{means[name]:.4g}" if name in means else "–" for name in overall)]

    rows = [row(task, evaluation.mean_metrics(task)) for task in evaluation.per_task]
    rule = f" An episode succeeds with {protocol.success_rule}." if protocol.success_rule else ""
    note = f'<p class="soft">Means over episodes.{escape(rule)}</p>'
    return section("Measured", table(head, rows, row("all tasks", overall)), note)


def _comparisons(evaluation: Evaluation, others: Mapping[str, Evaluation]) -> str:
    head = [
        "compared with",
        "its success",
        "won",
        "lost",
        "difference",
        "95 % low",
        "95 % high",
        "p (not better)",
    ]
    rows = []
    for label, other in others.items():
        theirs = other.successes
        pairs = [e for e in evaluation.episodes if e.initial_state in theirs]
        wins, losses = wins_and_losses(pairs, theirs)
        difference, low, high = paired_difference(wins, losses, len(pairs))
        rows.append(
            [
                _title(label),
                f"{other.overall.rate:.1%}",
                str(wins),
                str(losses),
                f"{difference:+.1%}",
                f"{low:+.1%}",
                f"{high:+.1%}",
                f"{mcnemar_p(wins, losses):.2g}",
            ]
        )
    note = '<p class="soft">Pairs of episodes from the same initial state; exact McNemar test.</p>'
    return section("Compared on the same initial states", table(head, rows), note)


def _videos(evaluation: Evaluation, folder: Path) -> str:
    """The videos themselves, not links to them. Raises ValueError for a path out of `folder`."""
    figures, where = [], f"a video of the evaluation in {folder}"
    for entry in evaluation.videos:
        file = atomic.inside(folder, entry["path"], where)
        if not file.is_file():
            continue
        outcome, tone = ("success", "pass") if entry["success"] else ("failure", "fail")
        poster = file.with_suffix(".jpg")
        poster = atomic.inside(folder, poster.relative_to(folder).as_posix(), where)
        shown = f' poster="{_data(poster, "image/jpeg")}"' if poster.is_file() else ""
        figures.append(
            f'<figure class="{tone}"><video controls loop muted playsinline preload="metadata"'
            f'{shown} src="{_data(file, "video/mp4")}"></video><figcaption><b>{outcome}</b> '
            f"{escape(entry['task'])}, initial state {entry['index']}</figcaption></figure>"
        )
    return section("Episodes", f'<div class="videos">{"".join(figures)}</div>')


def _curves(curves: Mapping[str, Curve]) -> str:
    """One chart per loss with its validation curve, then one chart per group of other metrics."""
    groups: dict[str, dict[str, Curve]] = {}
    for name, curve in curves.items():
        if name not in _NOT_SHOWN and len(curve) > 1:
            chart = _chart_of(name, curves)
            label = name.rpartition("/")[2] if chart.endswith(_BY_TASK) else name
            groups.setdefault(chart, {})[label] = curve
    first = {title: place for place, title in enumerate(_FIRST_CHARTS)}
    order = sorted(groups, key=lambda title: (first.get(title, len(first)), title))
    charts = [f"<div>{curves_chart(groups[title], title)}</div>" for title in order]
    shown = f'<div class="charts">{"".join(charts[:_OPEN_CHARTS])}</div>'
    if rest := charts[_OPEN_CHARTS:]:
        shown += (
            f"<details><summary>{len(rest)} more</summary>"
            f'<div class="charts">{"".join(rest)}</div></details>'
        )
    return section("Training", shown)


def _chart_of(name: str, curves: Mapping[str, Curve]) -> str:
    """The title of the chart that shows a curve.

    A validation loss shares the chart of its loss; the tasks of a metric share one chart.
    """
    kind, _, rest = name.partition("/")
    if kind == "validation" and f"loss/{rest}" in curves:
        return f"loss/{rest}"
    group, _, _ = name.rpartition("/")
    return f"{group}{_BY_TASK}" if "/" in group else name


def _lineage(evaluation: Evaluation, lineage: Lineage) -> str:
    rows: dict[str, object] = {"checkpoint_digest": evaluation.checkpoint_digest}
    facts, keys = lineage.facts(), _CODE if lineage.environment else (*_DATASET, *_CODE)
    rows |= {key: _shown(facts.get(key)) for key in keys}
    rows |= {key: _shown(facts[key]) for key in facts if key not in (*keys, "missing")}
    note = "".join(f"<p>missing: {escape(problem)}</p>" for problem in lineage.missing)
    return section("Lineage", key_table(rows), note)


def _protocol(evaluation: Evaluation) -> str:
    rows = {"hash": evaluation.protocol_hash, "evaluation digest": evaluation.digest}
    rows |= {key: _shown(value) for key, value in evaluation.protocol.items() if key != "type"}
    return section("Protocol", key_table(rows))


def _config(config: Mapping) -> str:
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return section(
        "Config",
        f"<details><summary>as resolved, {len(text.splitlines())} lines</summary>"
        f'<pre class="mono">{escape(text)}</pre></details>',
    )


def _numbers(rate) -> list[str]:
    return [
        f"{rate.successes}/{rate.episodes}",
        f"{rate.rate:.1%}",
        f"{rate.low:.1%}",
        f"{rate.high:.1%}",
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _title(label: str) -> str:
    return label.removeprefix("baseline-").replace("-", " ")


def _shown(value) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return str(value)


def _data(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
