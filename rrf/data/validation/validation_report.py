"""The validation report as one HTML file that needs nothing else: no scripts, fonts or pictures
from outside.
"""

import base64
import html
from collections.abc import Sequence

import numpy as np

from rrf.data.images import encode_png
from rrf.data.validation.tables import Tables, dimension_columns

_STATUS = {
    "pass": ("passed", "#1a7f4b"),
    "warn": ("warning", "#b26a00"),
    "fail": ("failed", "#c0362c"),
    "crashed": ("could not run", "#7a3fa0"),
}
_ORDER = ("crashed", "fail", "warn", "pass")
_STYLE = """
:root { color-scheme: light; --ink: #1d2430; --soft: #5c6675; --line: #e3e7ee; --back: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; }
.verdict { display: inline-block; padding: 4px 14px; border-radius: 999px; color: #fff;
           font-weight: 600; margin: 10px 0; }
.soft { color: var(--soft); } code { font: 13px ui-monospace, Menlo, Consolas, monospace; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; }
.fact, .panel, table { background: #fff; border: 1px solid var(--line); border-radius: 10px; }
.fact { padding: 10px 14px; } .fact b { display: block; font-size: 19px; }
.panel { padding: 14px 16px; margin-bottom: 12px; }
table { width: 100%; border-collapse: separate; border-spacing: 0; overflow: hidden; }
th, td { text-align: left; vertical-align: top; padding: 8px 12px;
         border-bottom: 1px solid var(--line); }
th { background: #fbfcfd; font-size: 13px; color: var(--soft); }
tr:last-child td { border-bottom: 0; }
.badge { white-space: nowrap; font-size: 13px; font-weight: 600; }
ul { margin: 6px 0 0; padding-left: 18px; } li { overflow-wrap: anywhere; }
.strip { display: flex; gap: 6px; flex-wrap: wrap; margin-top: 8px; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 12px; }
.samples .panel { margin: 0; }
.strip img { width: 84px; height: 84px; object-fit: contain; background: #000; border-radius: 6px;
             image-rendering: pixelated; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 12px; }
.plots .panel { margin: 0; } svg { width: 100%; height: auto; display: block; }
svg text { font: 10px system-ui, sans-serif; fill: #5c6675; }
details summary { cursor: pointer; margin: 12px 0; }
"""


def render_html(report: dict, tables: Tables | None, data_docs: str | None = None) -> str:
    """The report as a page.

    Args:
        report: The content of validation.json.
        tables: The dataset's tables for pictures and plots, None if it could not be read.
        data_docs: Directory beside the page that holds Great Expectations' own pages.
    """
    verdict, colour = (
        ("Passed", _STATUS["pass"][1]) if report["passed"] else ("Failed", _STATUS["fail"][1])
    )
    checks = sorted(report["checks"], key=lambda check: _ORDER.index(check["status"]))
    wrong = [check for check in checks if check["status"] != "pass"]
    right = [check for check in checks if check["status"] == "pass"]
    counts = ", ".join(
        f"{report['counts'][status]} {_STATUS[status][0]}"
        for status in ("pass", "warn", "fail", "crashed")
        if report["counts"][status]
    )
    parts = [
        f"<h1>Dataset {_text(report['name'])}</h1>",
        f"<div class='soft'>content <code>sha256 {report['digest'][:16]}</code></div>",
        f"<div class='verdict' style='background:{colour}'>{verdict}</div>",
        f"<div class='soft'>{len(checks)} checks: {counts}{_link(data_docs)}</div>",
        _facts(report["facts"]),
    ]
    if wrong:
        parts += ["<h2>What is wrong</h2>", _check_table(wrong)]
    if tables is not None:
        parts += [_samples(tables), _plots(tables)]
    if right:
        parts += [
            "<h2>What holds</h2>",
            f"<details{'' if wrong else ' open'}><summary>{len(right)} checks passed</summary>",
            _check_table(right),
            "</details>",
        ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{_text(report['name'])}: {verdict.lower()}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def histogram_svg(values: np.ndarray, num_bins: int = 24, colour: str = "#3b6fd4") -> str:
    """A small histogram of finite values, with its smallest and largest value written below."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return "<svg viewBox='0 0 240 80'><text x='4' y='40'>no values</text></svg>"
    counts, edges = np.histogram(values, bins=num_bins)
    width, height = 240 / num_bins, 64
    bars = "".join(
        f"<rect x='{index * width:.1f}' y='{height - bar:.1f}' width='{width - 1:.1f}' "
        f"height='{bar:.1f}' fill='{colour}'/>"
        for index, bar in enumerate((counts / counts.max() * (height - 4)).tolist())
    )
    return (
        f"<svg viewBox='0 0 240 80' role='img'>{bars}"
        f"<line x1='0' x2='240' y1='{height}' y2='{height}' stroke='#c9d0da'/>"
        f"<text x='0' y='77'>{edges[0]:.4g}</text>"
        f"<text x='240' y='77' text-anchor='end'>{edges[-1]:.4g}</text></svg>"
    )


def _link(data_docs: str | None) -> str:
    if data_docs is None:
        return ""
    return f" (<a href='{_text(data_docs)}/index.html'>those of Great Expectations</a>)"


def _facts(facts: dict) -> str:
    titles = {
        "frames": "frames",
        "episodes": "episodes",
        "instructions": "instructions",
        "fps": "frames per second",
        "cameras": "cameras",
        "image_size": "image height, width (px)",
        "state_dimensions": "state dimensions",
        "action_dimensions": "action dimensions",
        "episode_length": "episode length: min, median, max",
        "success_rate": "episodes ending in success",
        "hold_previous_error_std": "error of repeating the last action (std)",
    }
    boxes = []
    for key, title in titles.items():
        value = facts.get(key)
        if value is None:
            continue
        if key == "success_rate":
            value = f"{value:.0%}"
        elif isinstance(value, list):
            value = ", ".join(
                f"{item:g}" if isinstance(item, float) else str(item) for item in value
            )
        elif isinstance(value, float):
            value = f"{value:.3g}"
        boxes.append(
            f"<div class='fact'><b>{_text(value)}</b><span class='soft'>{title}</span></div>"
        )
    return f"<h2>At a glance</h2><div class='facts'>{''.join(boxes)}</div>" if boxes else ""


def _check_table(checks: Sequence[dict]) -> str:
    rows = []
    for check in checks:
        name, colour = _STATUS[check["status"]]
        listed = "".join(f"<li>{_finding(finding)}</li>" for finding in check["findings"])
        more = check["num_bad"] - len(check["findings"])
        if more > 0:
            listed += f"<li class='soft'>and {more} more</li>"
        engine = "Great Expectations" if check["by"] == "great_expectations" else "rrf"
        rows.append(
            f"<tr><td class='badge' style='color:{colour}'>{name}</td>"
            f"<td><code>{_text(check['check'])}</code><br><span class='soft'>{engine}</span></td>"
            f"<td>{_text(check['title'])}{f'<ul>{listed}</ul>' if listed else ''}</td></tr>"
        )
    head = "<tr><th>result</th><th>check</th><th>what must hold, and where it does not</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _finding(finding: dict) -> str:
    where = [f"{key} {finding[key]}" for key in ("episode", "frame") if finding[key] is not None]
    place = f"<b>{_text(', '.join(where))}</b> " if where else ""
    return f"{place}<code>{_text(finding['key'])}</code>: {_text(finding['value'])}"


def _samples(tables: Tables) -> str:
    panels = []
    for camera, scan in tables.scans.items():
        strips: dict[str, list[str]] = {}
        for row in sorted(scan.samples):
            frame = tables.frames.iloc[row]
            task = int(frame["task_index"])
            name = tables.tasks[task] if 0 <= task < len(tables.tasks) else "unknown instruction"
            title = f"episode {frame['episode_index']:.0f}, frame {frame['frame_index']:.0f}"
            strips.setdefault(name, []).append(_picture(scan.samples[row], title))
        panels += [
            f"<div class='panel'><b>{_text(name)}</b> "
            f"<span class='soft'>camera {_text(camera)}</span>"
            f"<div class='strip'>{''.join(pictures)}</div></div>"
            for name, pictures in strips.items()
        ]
    return f"<h2>What the robot saw</h2><div class='samples'>{''.join(panels)}</div>"


def _picture(image: np.ndarray, title: str) -> str:
    png = base64.b64encode(encode_png(image[None])[0]).decode()
    return f"<img src='data:image/png;base64,{png}' title='{_text(title)}' alt='{_text(title)}'>"


def _plots(tables: Tables) -> str:
    columns = dimension_columns(tables.schema)
    plots = [("frames per episode", tables.episodes["num_rows"].to_numpy(float), "#5c6675")]
    for (_, names), colour in zip(columns.items(), ("#1a7f4b", "#3b6fd4"), strict=True):
        plots += [
            (name.removeprefix("observation."), tables.frames[name].to_numpy(float), colour)
            for name in names
        ]
    panels = "".join(
        f"<div class='panel'><code>{_text(name)}</code>{histogram_svg(values, colour=colour)}</div>"
        for name, values, colour in plots
    )
    return f"<h2>How values are distributed</h2><div class='plots'>{panels}</div>"


def _text(value) -> str:
    return html.escape(str(value))
