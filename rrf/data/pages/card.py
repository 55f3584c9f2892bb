"""The dataset card: one markdown file, README.md, that says what a dataset is, where it comes from,
under which licence, and what validation found.

It begins with the metadata that the Hugging Face hub reads (licence, tags), and says nothing that
changes from day to day: the same dataset gives the same card.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import yaml

from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.dataset.layout import NORM_STATS
from rrf.data.files import content_digest
from rrf.data.schema import INDEX_KEYS
from rrf.data.validation.summary import (
    DatasetPlace,
    Summary,
    describe_feature,
    dimension_labels,
    duration,
)
from rrf.data.validation.validate import JSON_NAME, read_report

CARD = "README.md"
MAX_INSTRUCTIONS = 50
MAX_WARNINGS = 20
_STATISTICS = ("min", "q01", "mean", "q99", "max", "std")


def render_card(
    summary: Summary, report: Mapping | None, link: str | None = None, repo_id: str | None = None
) -> str:
    """The card as markdown.

    Args:
        summary: What the dataset holds.
        report: The content of validation.json, None if there is none on this content.
        link: From where the card is shown to validation.html; for datasets/NAME by default.
        repo_id: OWNER/NAME on the Hugging Face hub, if the card is shown there.
    """
    description = _description(summary)
    name = description.get("name") or summary.root.resolve().name
    licence = description.get("licence") or "unknown"
    parts = [
        _front_matter(name, licence),
        f"# {_text(name)}",
        "## At a glance",
        _at_a_glance(summary),
        "## Licence",
        _licence(licence),
        "## Provenance",
        _provenance(summary),
        "## What a frame holds",
        _features(summary),
        "## Instructions",
        _instructions(summary),
        "## Statistics",
        _statistics(summary),
        "## Validation",
        _validation(report, link or f"../reports/{name}/validation.html"),
        "## Use",
        _use(name, repo_id),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def judgement(place: DatasetPlace) -> dict | None:
    """The content of validation.json; None if there is none, or it judged another content."""
    if place.reports is None or not (place.reports / JSON_NAME).is_file():
        return None
    report = read_report(place.reports)
    # what publishing added was not judged
    digest = content_digest(place.root, without=(NORM_STATS, CARD))
    return report if report["digest"] == digest else None


def _description(summary: Summary) -> dict[str, str]:
    """What info.json says of name, licence and provenance, each on one line. That of others may
    hold anything.
    """
    provenance = summary.info.get("provenance") or {}
    entries = provenance if isinstance(provenance, dict) else {"provenance": provenance}
    return {key: " ".join(str(value).split()) for key, value in entries.items() if value}


def _front_matter(name: str, licence: str) -> str:
    is_identifier = re.fullmatch(r"[A-Za-z0-9.+-]+", licence) is not None
    data: dict = {"license": licence.lower() if is_identifier else "other"}
    if not is_identifier:
        data["license_name"] = licence
    data |= {
        "pretty_name": name,
        "task_categories": ["robotics"],
        "tags": ["LeRobot"],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---"


def _at_a_glance(summary: Summary) -> str:
    fps, lengths = summary.fps, [episode.length for episode in summary.episodes]
    cameras = [key.removeprefix("observation.images.") for key in summary.cameras]
    facts = {
        "episodes": len(lengths),
        "frames": summary.num_frames,
        "duration": duration(summary.num_frames / fps),
        "frames per second": f"{fps:g}",
        "frames per episode": f"{min(lengths)} to {max(lengths)}",
        "instructions": len(summary.instructions()),
        "cameras": ", ".join(cameras) or "none",
        "robot": summary.info.get("robot_type") or "unknown",
        "format": f"LeRobot {summary.info['codebase_version']}",
    }
    return _table(("", ""), ((key, _text(value)) for key, value in facts.items()))


def _licence(licence: str) -> str:
    if licence == "unknown":
        return "The dataset names no licence: ask those who recorded it before using it."
    return f"{_text(licence)}."


def _provenance(summary: Summary) -> str:
    provenance = _description(summary).get("provenance")
    lines = [_text(provenance or "The dataset does not say how it came to be.")]
    source = read_conversion(summary.root)
    if source is not None:
        where = f"{_code(source.get('path'))} (format {_code(source.get('format'))})"
        lines.append(f"Converted from {where}." if "steps" not in source else _edit_history(source))
    merged = summary.info.get("merged") or {}
    weights = summary.info.get("weights") or {}
    if merged:
        rows = [
            (
                _text(name),
                f"{weights.get(name, 1.0):g}",
                _text(origin.get("licence") or "unknown"),
                _text(origin.get("provenance") or "unknown"),
            )
            for name, origin in merged.items()
        ]
        lines.append(_table(("merged from", "weight", "licence", "provenance"), rows))
    if summary.warnings:
        lines.append("What was odd about the recordings:")
        lines.append(_list(_text(warning) for warning in summary.warnings[:MAX_WARNINGS]))
    if len(summary.warnings) > MAX_WARNINGS:
        lines.append(f"and {len(summary.warnings) - MAX_WARNINGS} more.")
    return "\n\n".join(lines)


def _edit_history(record: Mapping) -> str:
    """What was done to which content of which dataset."""
    origin = record["origin"]
    steps = (
        f"{name}: {_code(json.dumps(value, ensure_ascii=False))}"
        for step in record["steps"]
        for name, value in step.items()
    )
    title = f"Edited from {_code(origin['dataset'])} (sha256 {_code(origin['sha256'])}) by:"
    return f"{title}\n\n{_list(steps)}"


def _features(summary: Summary) -> str:
    rows = []
    for key in summary.info["features"]:
        if key not in INDEX_KEYS:
            dtype, shape, names, unit = describe_feature(summary, key)
            rows.append((_code(key), _text(dtype), _code(shape), _text(names), _text(unit)))
    table = _table(("key", "dtype", "shape", "names", "unit"), rows)
    return f"{table}\n\nBeside them: {', '.join(_code(key) for key in INDEX_KEYS)}."


def _instructions(summary: Summary) -> str:
    counts = summary.instructions()
    rows = [
        (_text(instruction) or "(none)", episodes, frames)
        for instruction, (episodes, frames) in list(counts.items())[:MAX_INSTRUCTIONS]
    ]
    more = len(counts) - len(rows)
    rest = f"\n\nand {more} more." if more > 0 else ""
    annotations = [
        (_text(style) or "(tool calls)", *counts) for style, counts in summary.annotations.items()
    ]
    parts = [_table(("instruction", "episodes", "frames"), rows) + rest]
    if annotations:
        parts.append(_table(("language annotations", "episodes", "rows"), annotations))
    return "\n\n".join(parts)


def _statistics(summary: Summary) -> str:
    rows = []
    for key, stats in summary.stats.items():
        feature = summary.info["features"][key]
        limits = feature.get("info") or {}
        low, high = limits.get("low"), limits.get("high")
        for index, label in enumerate(dimension_labels(key, feature)):
            values = [f"{stats[statistic][index]:.4g}" for statistic in _STATISTICS]
            allowed = [f"{bound[index]:g}" if bound else "" for bound in (low, high)]
            allowed_range = " to ".join(allowed) if any(allowed) else ""
            rows.append((_code(label), *values, allowed_range))
    return _table(("dimension", *_STATISTICS, "allowed"), rows)


def _validation(report: Mapping | None, link: str) -> str:
    if report is None:
        return "There is no validation report on this content."
    counts, total = report["counts"], len(report["checks"])
    verdict = "Passed" if report["passed"] else "**Failed**"
    lines = [
        f"{verdict}: {counts['pass']} of {total} checks hold; warnings: {counts['warn']}, "
        f"errors: {counts['fail'] + counts['crashed']}. All of them: "
        f"[validation.html]({link}).",
        f"Content judged: sha256 {_code(report['digest'])}.",
    ]
    not_passed = [check for check in report["checks"] if check["status"] != "pass"]
    if not_passed:
        lines.append(_list(_finding(check) for check in not_passed[:MAX_WARNINGS]))
    if len(not_passed) > MAX_WARNINGS:
        lines.append(f"and {len(not_passed) - MAX_WARNINGS} more.")
    return "\n\n".join(lines)


def _finding(check: Mapping) -> str:
    text = f"{check['status']}: {_code(check['check'])}: {_text(check['title'])}"
    if not check["findings"]:
        return text
    first = check["findings"][0]
    where = [f"{key} {first[key]}" for key in ("episode", "frame") if first[key] is not None]
    place = ", ".join([*where, _code(first["key"])])
    more = f", and {check['num_bad'] - 1} more" if check["num_bad"] > 1 else ""
    return f"{text} ({place}: {_text(first['value'])}{more})"


def _use(name: str, repo_id: str | None) -> str:
    arguments = f'"{repo_id}"' if repo_id else f'"local/{name}", root="datasets/{name}"'
    code = (
        "```python\n"
        "from lerobot.datasets.lerobot_dataset import LeRobotDataset\n\n"
        f"dataset = LeRobotDataset({arguments})\n"
        "```"
    )
    if repo_id:
        return f"{code}\n\nWith RoboRenForce: `rrf data download {repo_id}`."
    return (
        f"{code}\n\n"
        f"Its version is the md5 of `datasets/{name}` in dvc.lock, and stands on every run trained "
        "from it."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _text(value) -> str:
    """Text that markdown and HTML leave as it is, on one line."""
    special = r"[\\`*\[<|~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])"  # but _ within a word
    text = re.sub(special, r"\\\g<0>", " ".join(str(value).split()))
    text = re.sub(r"^(\d+)(?=[.)]( |$))", r"\1\\", text)  # what would begin a list
    return re.sub(r"^(?=[#>+=-](?![\d.]))", r"\\", text)  # or a title, a quote, a line


def _code(value) -> str:
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`"
