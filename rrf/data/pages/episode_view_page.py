"""The page that shows episodes frame by frame: its HTML, style and script."""

import json
from collections.abc import Sequence

from jinja2 import Environment
from markupsafe import Markup

from rrf.data.pages.dataset_report_page import STYLE

_STYLE = """
header { position: sticky; top: 0; z-index: 2; background: var(--back); padding: 10px 0;
         border-bottom: 1px solid var(--line); display: flex; gap: 12px; align-items: center; }
header input { flex: 1; } header output { font-variant-numeric: tabular-nums; min-width: 15em; }
button, select { font: inherit; padding: 2px 12px; }
.cameras { display: flex; flex-wrap: wrap; gap: 12px; }
.cameras img { display: block; height: 240px; background: #000; border-radius: 6px; }
.plot { position: relative; } .plot svg { height: 72px; }
.plot i { position: absolute; top: 0; bottom: 0; width: 1px; background: #c0362c; }
.plot polyline { fill: none; stroke: #3b6fd4; stroke-width: 1.2;
                 vector-effect: non-scaling-stroke; }
.row { display: flex; justify-content: space-between; gap: 8px; }
.row b { font-variant-numeric: tabular-nums; }
"""
_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title><style>{{ style }}</style></head>
<body><main>
<h1>{{ title }}</h1>
<div class="soft"><code>{{ where }}</code></div>
<header><select id="episode" aria-label="episode">{% for episode in episodes %}
<option value="{{ loop.index0 }}">episode {{ episode.number }}</option>{% endfor %}</select>
<button id="play">play</button>
<input id="at" type="range" min="0" value="0" aria-label="frame">
<output id="where"></output></header>
{% for episode in episodes %}
<section data-index="{{ loop.index0 }}"{{ ' hidden' if loop.index0 }}>
<h2>{{ episode.instruction }}</h2>
<div class="soft">episode {{ episode.number }}: {{ episode.length }} frames,
{{ '%g' % episode.fps }} frames/s, {{ episode.duration }}; <code>{{ episode.source }}</code></div>
{% if episode.frames|length < episode.length %}<div class="soft">Only
{{ episode.frames|length }} of these frames are shown.</div>{% endif %}
{% if episode.cameras %}<h3>Images</h3>
<div class="cameras">{% for camera in episode.cameras %}
<div class="panel{{ ' tiny' if camera.is_tiny }}"><code>{{ camera.key }}</code>
<img alt="{{ camera.key }}" src="{{ camera.frames[0] }}"></div>{% endfor %}</div>{% endif %}
{% for group in episode.groups %}
<h3><code>{{ group.key }}</code> <span class="soft">{{ group.unit }}</span></h3>
<div class="grid plots">{% for one in group.dimensions %}
<div class="panel"><div class="row"><code>{{ one.name }}</code><b></b></div>
<div class="plot"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"></svg><i></i>
</div><div class="row soft"><span></span><span></span></div></div>{% endfor %}</div>
{% endfor %}
{% if episode.language %}<h3>Language</h3>
<table><tr><th>time</th><th>holds</th><th>style</th><th>role</th><th>camera</th><th>text</th></tr>
{% for one in episode.language %}<tr><td>{{ one.time }}</td><td>{{ one.when }}</td>
<td>{{ one.style }}</td><td>{{ one.role }}</td><td><code>{{ one.camera }}</code></td>
<td>{{ one.text }}</td></tr>
{% endfor %}</table>{% endif %}
<h3>Keys</h3>
<table><tr><th>key</th><th>type</th><th>names</th><th>unit</th><th>text</th></tr>
{% for one in episode['keys'] %}<tr><td><code>{{ one.key }}</code></td><td>{{ one.type }}</td>
<td>{{ one.names }}</td><td>{{ one.unit }}</td><td>{{ one.text }}</td></tr>
{% endfor %}</table>
</section>{% endfor %}
</main><script>const EPISODES = {{ data }};
{{ script }}</script></body></html>
"""
_SCRIPT = """
const byId = id => document.getElementById(id);
const sections = [...document.querySelectorAll("section")];
let shown = 0, frame = 0, timer = null;

function draw(panel, values) {
  const known = values.filter(value => value !== null);
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  const step = 100 / Math.max(values.length - 1, 1);
  const down = value => 97 - 94 * (value - low) / span;
  const points = values.flatMap((value, index) =>
    value === null ? [] : [`${(index * step).toFixed(2)},${down(value).toFixed(2)}`]);
  panel.querySelector("svg").innerHTML = `<polyline points="${points.join(" ")}"/>`;
  const [least, most] = panel.querySelectorAll(".soft span");
  if (known.length) { least.textContent = low; most.textContent = high; }
}

function show(index) {
  const episode = EPISODES[shown], section = sections[shown], last = episode.frames.length - 1;
  frame = Math.max(0, Math.min(index, last));
  section.querySelectorAll("img").forEach((image, at) => {
    image.src = episode.cameras[at][frame];
  });
  section.querySelectorAll(".plots .panel").forEach((panel, at) => {
    const value = episode.values[at][frame];
    panel.querySelector("b").textContent = value === null ? "not a number" : value;
    panel.querySelector("i").style.left = `${100 * frame / Math.max(last, 1)}%`;
  });
  byId("at").value = frame;
  const number = episode.frames[frame];
  byId("where").textContent =
    `frame ${number} of ${episode.length}, ${(number / episode.fps).toFixed(2)} s`;
}

function choose(index) {
  shown = index;
  sections.forEach((section, at) => { section.hidden = at !== index; });
  byId("at").max = EPISODES[index].frames.length - 1;
  show(0);
}

function play(wanted) {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = wanted ? "pause" : "play";
  if (!wanted) return;
  const { frames, fps, length } = EPISODES[shown];
  timer = setInterval(() => show(frame + 1 < frames.length ? frame + 1 : 0),
    1000 * length / frames.length / fps);
}

sections.forEach((section, index) => section.querySelectorAll(".plots .panel").forEach(
  (panel, at) => draw(panel, EPISODES[index].values[at])));
byId("episode").onchange = event => { play(false); choose(+event.target.value); };
byId("at").oninput = event => { play(false); show(+event.target.value); };
byId("play").onclick = () => play(timer === null);
document.onkeydown = event => {
  if (["SELECT", "INPUT"].includes(event.target.tagName)) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) { play(false); show(frame + step); }
};
choose(0);
"""


def render_page(title: str, where: str, episodes: Sequence[dict]) -> str:
    """The whole document.

    Args:
        title: What it is called.
        where: Where the data lie.
        episodes: As `rrf.data.pages.episode_view` makes them: plain text, numbers, and images as
            data URLs.
    """
    data = [
        {name: episode[name] for name in ("frames", "length", "fps")}
        | {
            "cameras": [camera["frames"] for camera in episode["cameras"]],
            "values": [one["values"] for group in episode["groups"] for one in group["dimensions"]],
        }
        for episode in episodes
    ]
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    return template.render(
        title=title,
        where=where,
        episodes=episodes,
        style=Markup(STYLE + _STYLE),
        script=Markup(_SCRIPT),
        # only numbers and data URLs: nothing in it can end the script
        data=Markup(json.dumps(data, allow_nan=False)),
    )
