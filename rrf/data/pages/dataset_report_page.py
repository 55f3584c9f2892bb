"""The page of the dataset report: its HTML, style and curves."""

from collections.abc import Sequence

import numpy as np
from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup

COLOURS = ("#3b6fd4", "#1a7f4b", "#b26a00", "#c0362c", "#7a3fa0", "#1f8a99")  # of the episodes
_MAX_POINTS = 120
_WIDTH, _HEIGHT = 240, 64
STYLE = """
:root { color-scheme: light; --ink: #1d2430; --soft: #5c6675; --line: #e3e7ee; --back: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; }
h3 { font-size: 15px; margin: 22px 0 10px; }
nav a { margin-right: 14px; }
.soft { color: var(--soft); } code { font: 13px ui-monospace, Menlo, Consolas, monospace; }
.verdict { display: inline-block; padding: 3px 12px; border-radius: 999px; color: #fff;
           font-weight: 600; background: #5c6675; margin: 10px 10px 10px 0; }
.passed { background: #1a7f4b; } .failed { background: #c0362c; }
.grid { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(128px, 1fr)); }
.plots { grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); }
.episodes { grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); }
.panel, table { background: #fff; border: 1px solid var(--line); border-radius: 10px; }
.panel { padding: 12px 14px; overflow-wrap: anywhere; }
.panel b.big { display: block; font-size: 19px; }
.mark { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
table { width: 100%; border-collapse: separate; border-spacing: 0; overflow: hidden; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px; overflow-wrap: anywhere;
         border-bottom: 1px solid var(--line); }
th { font-size: 13px; color: var(--soft); } tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bar { width: 30%; } td.bar i { display: block; height: 12px; margin-top: 5px;
         background: #3b6fd4; border-radius: 3px; }
video { width: 100%; max-height: 320px; background: #000; border-radius: 6px; }
.strip { display: flex; gap: 4px; margin: 4px 0 8px; }
.strip img { flex: 1; min-width: 0; max-height: 90px; object-fit: contain; background: #000;
             border-radius: 4px; }
.tiny { image-rendering: pixelated; } h3 .soft { font-weight: 400; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 10px system-ui, sans-serif; fill: #5c6675; }
.card { padding: 6px 24px 20px; } .card table { font-size: 13px; margin: 10px 0; }
details summary { cursor: pointer; }
"""
_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}</title><style>{{ style }}</style></head>
<body><main>
<h1>Dataset {{ name }}</h1>
<div class="soft"><code>{{ root }}</code></div>
{% if validation %}
<span class="verdict {{ 'passed' if validation.passed else 'failed' }}">
validation {{ 'passed' if validation.passed else 'failed' }}</span>
<span class="soft">{{ validation.counts.pass }} checks hold; warnings: {{ validation.counts.warn }},
errors: {{ validation.counts.fail + validation.counts.crashed }}</span>
{% else %}<span class="verdict">no validation report</span>{% endif %}
<nav>{% for title, link in links.items() %}<a href="{{ link }}">{{ title }}</a>{% endfor %}
<a href="#episodes">episodes</a><a href="#instructions">instructions</a>
<a href="#values">values</a><a href="#card">dataset card</a></nav>

<h2>At a glance</h2>
<div class="grid">{% for title, value in facts.items() %}
<div class="panel"><b class="big">{{ value }}</b><span class="soft">{{ title }}</span></div>
{% endfor %}</div>
{% if warnings %}<h2>What is odd</h2><div class="panel">
<ul>{% for warning in warnings %}<li>{{ warning }}</li>{% endfor %}</ul></div>{% endif %}

<h2 id="episodes">What the robot saw and was told</h2>
<div class="grid episodes">{% for episode in episodes %}
<div class="panel"><span class="mark" style="background:{{ colours[loop.index0] }}"></span>
<b>{{ episode.instruction }}</b>
<div class="soft">episode {{ episode.number }}: {{ episode.length }} frames,
{{ episode.duration }}</div>
{% for camera in episode.cameras %}<div class="soft">{{ camera.name }}</div>
<div{{ ' class=tiny' if camera.is_tiny }}>
<video src="{{ camera.clip }}" autoplay loop muted playsinline controls></video>
<div class="strip">{% for frame, picture in camera.frames %}
<img src="{{ picture }}" alt="frame {{ frame }}" title="frame {{ frame }}">{% endfor %}</div></div>
{% endfor %}</div>
{% endfor %}</div>

<h2>How long episodes are</h2>
<div class="grid plots"><div class="panel">frames per episode{{ lengths }}</div></div>

<h2 id="instructions">Instructions</h2>
<table><tr><th>instruction</th><th class="n">episodes</th><th class="n">frames</th><th></th></tr>
{% for one in instructions %}<tr><td>{{ one.text }}</td><td class="n">{{ one.episodes }}</td>
<td class="n">{{ one.frames }}</td>
<td class="bar"><i style="width:{{ '%.1f' % (one.share * 100) }}%"></i></td></tr>
{% endfor %}</table>
{% if num_instructions > instructions|length %}
<p class="soft">and {{ num_instructions - instructions|length }} more</p>{% endif %}

<h2 id="values">Values per dimension</h2>
<p class="soft">The upper plot shows how often each value occurs in the dataset. The lower plot
shows the value over time in the episodes above, each in the colour of its episode.</p>
{% for group in groups %}
<h3><code>{{ group.key }}</code> <span class="soft">{{ group.unit }}</span></h3>
<div class="grid plots">{% for plot in group.plots %}
<div class="panel"><code>{{ plot.name }}</code>
{% if plot.is_constant %}<span class="soft">constant</span>{% endif %}
{{ plot.histogram }}{{ plot.curves }}<span class="soft">{{ plot.numbers }}</span></div>
{% endfor %}</div>
{% endfor %}

<h2 id="card">Dataset card</h2>
<div class="panel card">{{ card }}</div>
</main></body></html>
"""


def render_page(card: str, lengths: str, groups: Sequence[dict], **content) -> str:
    """The whole document.

    Args:
        card: The dataset card, as markdown.
        lengths: The histogram of the episode lengths, as SVG.
        groups: One per feature. The "histogram" and the "curves" of its "plots" are SVG, too.
        content: What else the page shows, as plain text.
    """
    drawn = [
        group
        | {
            "plots": [
                plot | {name: Markup(plot[name]) for name in ("histogram", "curves")}
                for plot in group["plots"]
            ]
        }
        for group in groups
    ]
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    return template.render(
        style=Markup(STYLE),
        colours=COLOURS,
        card=Markup(markdown_html(card)),
        lengths=Markup(lengths),
        groups=drawn,
        **content,
    )


def markdown_html(text: str) -> str:
    """Markdown as HTML, without the metadata at its beginning. HTML in it stays text."""
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(text)


def lines_svg(curves: Sequence[np.ndarray]) -> str:
    """Curves over time in one drawing, each in the colour of its episode.

    The drawing reaches from the smallest to the largest value of all curves.
    """
    finite = [curve[np.isfinite(curve)] for curve in curves]
    values = np.concatenate([np.zeros(0), *finite])
    if len(values) == 0:
        return f"<svg viewBox='0 0 {_WIDTH} 80'><text x='4' y='40'>no values</text></svg>"
    low, high = float(values.min()), float(values.max())
    longest = max(len(curve) for curve in curves)
    drawn = "".join(
        _line(curve, low, high, longest, colour)
        for curve, colour in zip(curves, COLOURS, strict=False)
    )
    return (
        f"<svg viewBox='0 0 {_WIDTH} 80' role='img'>{drawn}"
        f"<text x='0' y='77'>{low:.4g}</text>"
        f"<text x='{_WIDTH}' y='77' text-anchor='end'>{high:.4g}</text></svg>"
    )


def _line(curve: np.ndarray, low: float, high: float, longest: int, colour: str) -> str:
    frames = np.unique(np.linspace(0, len(curve) - 1, _MAX_POINTS).round().astype(int))
    frames = frames[np.isfinite(curve[frames])]
    across = frames / max(longest - 1, 1) * _WIDTH
    span = high - low or 1.0
    down = (_HEIGHT - 4) * (1 - (curve[frames].astype(float) - low) / span) + 2
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.2' "
        "opacity='0.8'/>"
    )
