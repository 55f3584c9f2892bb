"""The validation report as one HTML file that needs nothing else: no scripts, fonts or pictures
from outside.
"""

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from rrf.data.images import encode_png
from rrf.data.validation.tables import Tables, dimension_columns
from rrf.pages.charts import histogram
from rrf.pages.page import data_url, render

_ORDER = ("crashed", "fail", "warn", "pass")
_FACTS = {
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


def render_html(report: Mapping, tables: Tables | None, data_docs: str | None = None) -> str:
    """The report as a page.

    Args:
        report: The content of validation.json.
        tables: The dataset's tables for pictures and plots, None if it could not be read.
        data_docs: Directory beside the page that holds Great Expectations' own pages.
    """
    facts = report["facts"]
    return render(
        "data/validation/validation.html",
        title=f"{report['name']}: {'passed' if report['passed'] else 'failed'}",
        **{key: report[key] for key in ("name", "digest", "passed", "counts")},
        checks=sorted(report["checks"], key=lambda check: _ORDER.index(check["status"])),
        data_docs=data_docs,
        at_a_glance={
            title: _shown(key, facts[key])
            for key, title in _FACTS.items()
            if facts.get(key) is not None
        },
        samples={} if tables is None else _samples(tables),
        plots={} if tables is None else _plots(tables),
    )


def _shown(key: str, value) -> str:
    """A fact as text."""
    if key == "success_rate":
        return f"{value:.0%}"
    if isinstance(value, list):
        return ", ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _samples(tables: Tables) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By camera and instruction: pictures, each after its place in the dataset."""
    strips: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for camera, scan in tables.scans.items():
        for row in sorted(scan.samples):
            frame = tables.frames.iloc[row]
            task = int(frame["task_index"])
            is_known = 0 <= task < len(tables.tasks)
            instruction = tables.tasks[task] if is_known else "unknown instruction"
            title = f"episode {frame['episode_index']:.0f}, frame {frame['frame_index']:.0f}"
            png = encode_png(scan.samples[row][None])[0]
            picture = data_url("image/png", png)
            strips.setdefault((camera, instruction), []).append((title, picture))
    return strips


def _plots(tables: Tables) -> dict[str, Markup]:
    """The histograms of episode lengths and of every dimension, by name."""
    plots = {"frames per episode": histogram(_numbers(tables.episodes["num_rows"]), "#6b7280")}
    columns = dimension_columns(tables.schema).values()
    for names, color in zip(columns, ("#0f766e", "#1d4ed8"), strict=True):
        for name in names:
            title = name.removeprefix("observation.")
            plots[title] = histogram(_numbers(tables.frames[name]), color)
    return plots


def _numbers(column) -> np.ndarray:
    return column.to_numpy(float)
