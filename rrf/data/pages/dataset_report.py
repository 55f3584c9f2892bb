"""One HTML page that shows a dataset and needs no other file. It has clips and frames of a few
episodes, a histogram and curves per dimension, episode lengths, instructions, the dataset card, and
links to the results of validation.

Legend: T frames, H height, W width, N rows, D dimensions.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from markdown_it import MarkdownIt
from markupsafe import Markup

from rrf import atomic
from rrf.data.conversion.video_encoding import encode_video
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.pages.card import judgement, render_card
from rrf.data.pages.pictures import Pictures
from rrf.data.raw import RawEpisode
from rrf.data.validation.summary import (
    DatasetPlace,
    EpisodeSummary,
    OnProgress,
    Summary,
    dimension_labels,
    duration,
    read_summary,
    summarise,
)
from rrf.data.validation.validate import HTML_NAME as VALIDATION_HTML
from rrf.pages.charts import COLORS, histogram, lines
from rrf.pages.page import data_url, render

HTML_NAME = "dataset.html"
NUM_EPISODES = 6
NUM_FRAMES = 5
MAX_CLIP_FRAMES = 240
CLIP_SIZE = 256  # px, the longer side at most
FRAME_SIZE = 128
MAX_ROWS = 1 << 16  # histograms are drawn from at most this many
MAX_INSTRUCTIONS = 200
_VALIDATION = "validation report"


def write_report(
    place: DatasetPlace,
    out: str | Path,
    on_progress: OnProgress = lambda done, total, what: None,
    on_clip: OnProgress = lambda done, total, what: None,
) -> None:
    """Write the page.

    Args:
        place: The dataset.
        out: The file.
        on_progress: Called after each episode that is counted.
        on_clip: Called after each episode that is shown.

    Raises:
        ValueError: For damaged data; the message names file, episode and key.
    """
    rows: dict[str, _Rows] = {}

    def keep(episode: EpisodeSummary, values: dict[str, np.ndarray]) -> None:
        for key, values_td in values.items():
            rows.setdefault(key, _Rows()).add(values_td)

    summary = summarise(place.root, on_progress, keep)
    source = LeRobotSource(place.root, {})
    chosen = choose_episodes(summary.episodes)
    panels, curves = [], {key: [] for key in summary.stats}
    for done, episode in enumerate(chosen, start=1):
        raw = source.episode(episode.number, [*summary.stats, *summary.cameras])
        panels.append(_panel(episode, raw, summary))
        for key, series in curves.items():
            series.append(raw.arrays[key].reshape(len(raw), -1))
        on_clip(done, len(chosen), f"episode {episode.number}")
    report = judgement(place)
    links = _links(place, Path(out))
    on_card = read_summary(place.root) if place.is_published else summary
    page = render(
        "data/pages/dataset.html",
        title=place.name,
        root=str(place.root),
        at_a_glance=_facts(summary),
        validation=report,
        links=links,
        warnings=summary.warnings,
        episodes=panels,
        colors=COLORS,
        lengths=histogram(np.array([episode.length for episode in summary.episodes], float)),
        instructions=list(summary.instructions().items()),
        max_instructions=MAX_INSTRUCTIONS,
        total_episodes=len(summary.episodes),
        groups=[_group(summary, key, rows[key], curves[key]) for key in summary.stats],
        card=markdown_html(render_card(on_card, report, links.get(_VALIDATION))),
    )
    atomic.write_text(out, page)


def markdown_html(text: str) -> Markup:
    """Markdown as HTML, without the metadata at its beginning. HTML in it stays text."""
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def choose_episodes(
    episodes: Sequence[EpisodeSummary], num: int = NUM_EPISODES
) -> list[EpisodeSummary]:
    """The episodes to show: the first of each of the most frequent instructions.

    If there are fewer than `num`, others are added that are spread over the dataset.
    """
    by_instruction: dict[str, list[EpisodeSummary]] = {}
    for episode in episodes:
        by_instruction.setdefault(episode.instruction, []).append(episode)
    groups = sorted(by_instruction.values(), key=lambda group: -len(group))[:num]
    chosen = {group[0].number: group[0] for group in groups}
    for place in np.linspace(0, len(episodes) - 1, num).round().astype(int).tolist():
        if len(chosen) < num:
            chosen.setdefault(episodes[place].number, episodes[place])
    return [chosen[number] for number in sorted(chosen)]


class _Rows:
    """At most MAX_ROWS rows of a stream, evenly spread: every k-th row."""

    def __init__(self):
        self._parts: list[np.ndarray] = []
        self._stride, self._seen, self._kept = 1, 0, 0

    def add(self, values_nd: np.ndarray) -> None:
        part = values_nd[-self._seen % self._stride :: self._stride]
        self._seen += len(values_nd)
        self._parts.append(np.array(part, np.float32))
        self._kept += len(part)
        while self._kept > MAX_ROWS:
            self._parts = [np.concatenate(self._parts)[::2]]
            self._stride, self._kept = self._stride * 2, len(self._parts[0])

    def result(self) -> np.ndarray:
        return np.concatenate(self._parts)


def _facts(summary: Summary) -> dict[str, str]:
    lengths = [episode.length for episode in summary.episodes]
    return {
        "episodes": f"{len(lengths)}",
        "frames": f"{summary.num_frames}",
        "duration": duration(summary.num_frames / summary.fps),
        "frames per second": f"{summary.fps:g}",
        "frames per episode": f"{min(lengths)} to {max(lengths)}",
        "instructions": f"{len(summary.instructions())}",
        "cameras": f"{len(summary.cameras)}",
        "robot": str(summary.info.get("robot_type") or "unknown"),
    }


def _links(place: DatasetPlace, out: Path) -> dict[str, str]:
    """Links to the results of validation, relative to the page."""
    if place.reports is None:
        return {}
    pages = {_VALIDATION: place.reports / VALIDATION_HTML}
    docs = sorted((place.reports / "data_docs").rglob("index.html"), key=lambda p: len(p.parts))
    if docs:
        pages["expectations in full (Data Docs)"] = docs[0]
    folder = out.resolve().parent
    return {
        title: Path(os.path.relpath(path.resolve(), folder)).as_posix()
        for title, path in pages.items()
        if path.is_file()
    }


def _group(summary: Summary, key: str, rows: _Rows, curves: Sequence[np.ndarray]) -> dict:
    """The plots of one feature."""
    feature, values_nd = summary.info["features"][key], rows.result()
    stats: Mapping[str, list] = summary.stats[key]
    dimensions = [
        {
            "name": label.removeprefix(f"{key}."),
            "histogram": histogram(values_nd[:, index].astype(float)),
            "curves": lines([curve[:, index] for curve in curves]),
            "numbers": f"mean {stats['mean'][index]:.4g}, std {stats['std'][index]:.4g}",
            "is_constant": stats["min"][index] == stats["max"][index],
        }
        for index, label in enumerate(dimension_labels(key, feature))
    ]
    return {"key": key, "unit": (feature.get("info") or {}).get("unit", ""), "plots": dimensions}


def _panel(episode: EpisodeSummary, raw: RawEpisode, summary: Summary) -> dict:
    """The pictures of one episode."""
    fps = raw.fps or summary.fps
    cameras = []
    for key in summary.cameras:
        images = Pictures(raw.images[key], f"{raw.source}: {key}")
        numbers = np.linspace(0, len(images) - 1, NUM_FRAMES).round().astype(int).tolist()
        frames = [
            (number, data_url("image/jpeg", images.jpeg(number, FRAME_SIZE))) for number in numbers
        ]
        cameras.append(
            {
                "name": key.removeprefix("observation.images."),
                "is_tiny": max(images.small(0, CLIP_SIZE).shape) < FRAME_SIZE,
                "clip": data_url("video/mp4", _clip(images, fps)),
                "frames": frames,
            }
        )
    return {
        "number": episode.number,
        "instruction": episode.instruction or "(no instruction)",
        "length": episode.length,
        "duration": duration(episode.length / fps),
        "cameras": cameras,
    }


def _clip(images: Pictures, fps: float) -> bytes:
    """An h264 video as long as the episode. A long episode is shown by every k-th frame."""
    step = math.ceil(len(images) / MAX_CLIP_FRAMES)
    size = images.small(0, CLIP_SIZE).shape[:2]
    shown = (images.small(frame, CLIP_SIZE) for frame in range(0, len(images), step))
    rate = max(1, round(fps / step))
    return encode_video(shown, rate, (size[0], size[1]), "h264", keyframe_interval=2 * rate)
