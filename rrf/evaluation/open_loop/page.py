"""The page about an evaluation on recorded episodes: tables of errors, and curves of actions."""

from html import escape

from rrf.evaluation.open_loop.errors import PREDICTORS, OpenLoop
from rrf.evaluation.reports.charts import Curve, curves_chart
from rrf.evaluation.reports.page import page, section, table


def open_loop_page(result: OpenLoop, label: str, dataset: str) -> str:
    """The page as HTML.

    Args:
        result: The errors.
        label: The policy.
        dataset: The dataset, and which of its episodes.
    """
    sections = [
        section(
            "Errors",
            f"<p>Mean absolute errors of {result.num_frames} chunks on {escape(dataset)}, in units "
            "of each dimension. The last row is the mean over dimensions in standard deviations of "
            "the training data. A policy that is no worse with the images of another frame "
            "gains nothing from its own.</p>",
            _by_dimension(result),
        ),
        section(
            "By step of the chunk",
            "<p>In standard deviations of the training data.</p>",
            curves_chart(
                {who: _curve(result.per_step(who)) for who in PREDICTORS}, "error by step (std)"
            ),
        ),
    ]
    for trace in result.episodes:
        charts = [
            curves_chart(
                {
                    "demonstrated": _curve(trace.demonstrated[:, dim]),
                    "predicted": _curve(trace.predicted[:, dim]),
                },
                f"{name} ({unit})" if unit else name,
            )
            for dim, (name, unit) in enumerate(zip(result.names, result.units, strict=True))
        ]
        title = f"Episode {trace.number}: the first step of every predicted chunk"
        sections.append(section(title, f'<div class="charts">{"".join(charts)}</div>'))
    title = f"Open loop: {label}"
    return page(title, f"<h1>{escape(title)}</h1>", sections, "")


def _by_dimension(result: OpenLoop) -> str:
    rows = [
        [f"{name} ({unit})" if unit else name]
        + [f"{result.per_dimension(who)[dim]:.4g}" for who in PREDICTORS]
        for dim, (name, unit) in enumerate(zip(result.names, result.units, strict=True))
    ]
    total = ["mean, in standard deviations", *(f"{result.total(who):.3f}" for who in PREDICTORS)]
    return table(["dimension", *PREDICTORS], rows, total)


def _curve(values) -> Curve:
    return list(enumerate(values.tolist()))
