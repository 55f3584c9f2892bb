"""The page about an evaluation on recorded episodes: tables of errors, and curves of actions."""

from markupsafe import Markup

from rrf.evaluation.open_loop.errors import OpenLoop, Trace
from rrf.pages.charts import Curve, curves_chart
from rrf.pages.page import render


def open_loop_page(result: OpenLoop, label: str, dataset: str) -> str:
    """The page as HTML.

    Args:
        result: The errors.
        label: The policy.
        dataset: The dataset, and which of its episodes.
    """
    dimensions = [
        f"{name} ({unit})" if unit else name
        for name, unit in zip(result.names, result.units, strict=True)
    ]
    steps = {who: _curve(result.per_step(who)) for who in result.errors}
    return render(
        "evaluation/open_loop/open_loop.html",
        title=f"Open loop: {label}",
        num_frames=result.num_frames,
        dataset=dataset,
        head=["dimension", *result.errors],
        rows=[
            [dimension, *(f"{result.per_dimension(who)[index]:.4g}" for who in result.errors)]
            for index, dimension in enumerate(dimensions)
        ],
        total=["mean, in standard deviations", *(f"{result.total(w):.3f}" for w in result.errors)],
        by_step=curves_chart(steps, "error by step (std)"),
        episodes={trace.number: _charts(trace, dimensions) for trace in result.episodes},
    )


def _charts(trace: Trace, dimensions: list[str]) -> list[Markup]:
    """A chart of each dimension of an episode's actions."""
    return [
        curves_chart(
            {
                "demonstrated": _curve(trace.demonstrated[:, index]),
                "predicted": _curve(trace.predicted[:, index]),
            },
            dimension,
        )
        for index, dimension in enumerate(dimensions)
    ]


def _curve(values) -> Curve:
    return list(enumerate(values.tolist()))
