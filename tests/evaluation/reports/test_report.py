"""The report: self-contained, with every part it should have, and safe against odd names."""

import dataclasses
import html.parser
import re

import numpy as np
import pytest

from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.reports.charts import success_chart
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.reports.videos import choose_for_video, save_videos
from rrf.evaluation.results import Evaluation, Rate
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.play import replay
from rrf.lineage import DatasetLineage, Lineage
from rrf.pages.charts import COLORS, curves_chart
from tests.browser import browser
from tests.evaluation.vla.point_mass import GoTowards, PointMassVecEnv

PROTOCOL = ProtocolCfg(
    name="point <mass>",
    tasks=["reach", "far"],
    seed=4242,
    episodes_per_task=5,
    max_episode_steps=12,
)
LINEAGE = Lineage((DatasetLineage("demo", "0123.dir"),), missing=("raw_md5: run `dvc add`",))
CURVES = {
    "loss/total": [(1, 1.0), (2, 0.5)],
    "validation/total": [(2, 0.6)],
    "train/grad_norm": [(1, 2.0), (2, float("nan")), (3, 1.0)],
}


@pytest.fixture
def folder(tmp_path):
    """An evaluation directory with videos and the verdict of a gate."""
    report = evaluate(
        GoTowards(), PointMassVecEnv(4), PROTOCOL, checkpoint_digest="ab" * 32, label="A & B"
    )
    chosen = choose_for_video(report.episodes, limit=2)
    frames = replay(PointMassVecEnv(2, chunk_length=1, size=32), chosen, "top")
    report.videos = save_videos(tmp_path, chosen, frames, fps=10)
    report.save(tmp_path / "evaluation.json")
    gate = GateCfg(name="g", protocol=PROTOCOL, overall_lower_bound=0.6, looks=[5])
    decide(report, gate).save(tmp_path / "verdict-g.json")
    still = GoTowards()
    still.sample = lambda *_, **__: type("S", (), {"actions": np.zeros((1, 4, 2), np.float32)})()
    other = evaluate(
        still, PointMassVecEnv(1), PROTOCOL, checkpoint_digest="baseline", label="still"
    )
    other.save(tmp_path / "baseline-still.json")
    return tmp_path


class Page(html.parser.HTMLParser):
    """Collects tags, links to the outside, and text; fails on tags that do not match."""

    VOID = ("meta", "br", "img", "input", "hr", "link")

    def __init__(self, text: str):
        super().__init__()
        self.open, self.links, self.tags, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "poster") and v]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f" {data}"


def test_the_report_holds_everything_and_needs_nothing_else(folder):
    path = write_report(folder, LINEAGE, CURVES)
    text = path.read_text()
    page = Page(text)
    assert page.tags.count("video") == 2
    assert sum(link.startswith("data:") for link in page.links) == 4
    assert all(link.startswith(("data:", "#")) for link in page.links)
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(|@import", text)
    words = " ".join(page.text.split())
    assert "50.0% success, all tasks" in words
    assert "23.7% to 76.3%" in words
    assert "gate g: fail" in words
    assert "overall: 5/10 solved" in words
    assert "dataset_md5 0123.dir" in words
    assert "git_revision not recorded" in words
    assert "missing: raw_md5" in words
    assert "loss/total" in words
    assert "still 0.0% 5 0 +50.0%" in words
    assert "point <mass>" in words
    assert "Evaluation of A & B" in words


def test_groups_of_tasks_have_a_table_with_bounds(folder):
    words = " ".join(Page(write_report(folder).read_text()).text.split())
    assert "Success by group of tasks" not in words
    evaluation = Evaluation.load(folder)
    evaluation.protocol["groups"] = {"known": ["reach"], "all": ["reach", "far"]}
    evaluation.save(folder / "evaluation.json")
    words = " ".join(Page(write_report(folder).read_text()).text.split())
    assert "group tasks solved success 95 % low 95 % high known 1 5/5 100.0% 56.6%" in words
    assert "The worst: " in words
    # 5/5 has the exact one-sided bound .05 ** (1 / 5) = .549, more than what 'all' has
    assert evaluation.worst_group.startswith("all, ")
    assert float(evaluation.worst_group.split("at least ")[1].split(" %")[0]) < 54.9
    assert "all 2 5/10 50.0% 23.7% 76.3%" in words


def test_names_of_tasks_and_curves_are_only_text_and_the_page_is_the_same_every_time(folder):
    odd = "<script>alert(1)</script>"
    path = folder / "evaluation.json"
    path.write_text(path.read_text().replace('"reach"', f'"{odd}"'))
    facts = {"curves": {odd: [(0, 0.0), (1, 1.0)]}, "config": {odd: odd}, "subject": odd}
    text = write_report(folder, **facts).read_text()
    page = Page(text)
    assert "script" not in page.tags
    for words in (f"{odd}, initial state", f"Evaluation of {odd}", f"{odd}: {odd}", f" {odd} 5/5"):
        assert words in " ".join(page.text.split())
    (folder / "report.html").unlink()
    assert write_report(folder, **facts).read_text() == text


def test_a_page_that_shows_the_same_already_is_not_drawn_again(folder):
    facts: dict = {"lineage": LINEAGE, "curves": CURVES, "links": {"flow run": "run/1"}}
    first = write_report(folder, **facts).stat()
    path = write_report(folder, **facts | {"links": {"flow run": "run/2"}})
    assert path.stat().st_ino == first.st_ino
    assert "run/1" in path.read_text()
    for change in ({"links": {}}, {"subject": "another"}, {"curves": {}}, {"lineage": None}):
        facts |= change
        before = path.read_text()
        assert write_report(folder, **facts).read_text() != before
    path.write_text("not ours")
    assert "success, all tasks" in write_report(folder, **facts).read_text()


def test_a_page_stays_for_who_writes_it_again_unless_evaluation_or_verdicts_are_others(folder):
    page = write_report(folder, subject="version 1", curves=CURVES).read_text()
    assert write_report(folder, subject="a candidate", keep=True).read_text() == page
    for file in folder.glob("verdict-*.json"):
        file.unlink()
    assert (
        "Evaluation of a candidate"
        in write_report(folder, subject="a candidate", keep=True).read_text()
    )


def test_a_verdict_on_an_earlier_evaluation_is_left_out(folder):
    longer = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL.extended(1), label="longer")
    longer.save(folder / "evaluation.json")
    assert "gate g: fail" not in write_report(folder).read_text()


def test_a_report_without_videos_curves_or_verdict_is_still_whole(tmp_path):
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    report.save(tmp_path / "evaluation.json")
    page = Page(write_report(tmp_path).read_text())
    assert page.tags.count("section") == 4


def test_a_report_names_what_it_is_about_and_leads_to_its_runs(folder):
    pages = {"MLflow run": "https://mlflow.example.org/#/runs/1", "data <set>": "../d&d/card"}
    text = write_report(folder, subject="reach <3> version 2", links=pages).read_text()
    assert "<title>Evaluation of reach &lt;3&gt; version 2</title>" in text
    page = Page(text)
    assert "Evaluation of reach <3> version 2" in page.text
    assert [link for link in page.links if link[0] not in "#d"] == list(pages.values())
    odd = {"run": "javascript:alert(1)"}
    page = Page(write_report(folder, links=odd).read_text())
    assert not any("javascript" in link for link in page.links)


def test_a_telephone_shows_all_of_a_report(folder):
    links = {"MLflow run": f"rrf open {'12ab' * 8}", "dataset": "../../datasets/demo/README.md"}
    write_report(folder, LINEAGE, curves=CURVES, subject="of_a_long_name " * 3, links=links)
    with browser() as window:
        assert window.cut_at(390, folder / "report.html") == []


@pytest.fixture
def with_a_worse_task(folder):
    """The champion solves what the candidate does, and one initial state more of the task `far`;
    the gate passes."""
    report = Evaluation.load(folder)
    episodes = [dataclasses.replace(episode) for episode in report.episodes]
    next(e for e in episodes if e.task == "far" and not e.success).success = True
    champion = dataclasses.replace(report, episodes=episodes, checkpoint_digest="cd" * 32)
    lenient = GateCfg(name="g", protocol=PROTOCOL, overall_lower_bound=0.1, looks=[5])
    decide(report, lenient).save(folder / "verdict-g.json")
    return champion


def test_a_gate_that_passes_although_a_task_got_worse_says_so_in_the_headline(
    folder, with_a_worse_task
):
    page = Page(write_report(folder, champion=with_a_worse_task).read_text())
    headline = " ".join(page.text.split()).partition("Gate g: pass")[0]
    assert "Gate g passes although a task got worse." in headline
    assert "Compared with champion, one task is worse:" in headline
    assert "far: 0 of 5 instead of 1 (may be chance, p 0.50)" in headline
    assert "reach:" not in headline


def test_a_headline_without_a_worse_task_says_nothing_of_it(folder):
    same = Evaluation.load(folder)
    text = write_report(folder, champion=same).read_text()
    assert not {"worse", "worse:", "worse."} & set(Page(text).text.split())


class Marks(html.parser.HTMLParser):
    """What the marks of a chart say, the texts that stand in it, and the paths of the marks."""

    def __init__(self, chart: str):
        super().__init__()
        self.said, self.texts, self._open, self._last = {}, [], "", {}
        self.feed(chart)

    def handle_starttag(self, tag, attrs):
        if tag != "title":
            self._last = dict(attrs)
        self._open = tag

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "title":
            self.said[data] = self._last
        elif self._open == "text" and data.strip():
            self.texts.append(data)


def ends(path: str) -> tuple[float, float]:
    """The least and the greatest x of a path of straight lines."""
    numbers = [float(number) for number in re.findall(r"-?[0-9.]+", path)]
    return min(numbers[::2]), max(numbers[::2])


def test_a_bar_says_its_rate_with_bounds_and_is_as_long_as_it():
    rates = {"a": Rate.of([True] * 4), "b": Rate.of([True] * 3 + [False])}
    marks = Marks(success_chart(rates, {"champion": {"b": Rate.of([True, False])}}))
    assert list(marks.said) == [
        "a: 1.000 [0.510, 1.000] (4/4)",
        "b: 0.750 [0.301, 0.954] (3/4)",
        "champion, b: 0.500 [0.095, 0.905] (1/2)",
    ]
    a, b, champion = marks.said.values()
    (start, whole), (_, three_quarters) = ends(a["d"]), ends(b["d"])
    assert three_quarters - start == pytest.approx(0.75 * (whole - start), rel=1e-4)
    assert float(champion["x"]) - start == pytest.approx(0.5 * (whole - start), rel=1e-4)
    assert {"a", "b", "champion", "100%  4/4", "75%  3/4"} <= set(marks.texts)


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ([0, 1], [0.5, 0.5]),
        ([0, 3], [0.5, 0.5001]),
        ([1, 2], [1e-9, 3e-9]),
        ([0, 1_000_000], [1e6, 2e6]),
        ([100, 200], [0.001, 5.0]),
    ],
)
def test_tick_labels_are_there_and_none_is_repeated(steps, values):
    chart = curves_chart({"loss/x": list(zip(steps, values, strict=True))}, "loss/x")
    labels = re.findall(r"text-anchor: (middle|end)[^>]*>([^<]+)<", chart)
    for axis in ("middle", "end"):
        ticks = [label for anchor, label in labels if anchor == axis]
        assert len(ticks) >= 2
        assert len(set(ticks)) == len(ticks)


def test_points_of_a_curve_say_their_values_and_the_last_is_among_them():
    curve = [(step, step / 10) for step in range(0, 1001)]
    said = list(Marks(curves_chart({"loss/total": curve}, "loss/total")).said)
    assert said[0] == "loss/total, step 0: 0"
    assert said[-1] == "loss/total, step 1,000: 100"
    assert 50 <= len(said) <= 62


def test_every_line_of_a_chart_looks_different():
    names = [f"seed {number}" for number in range(12)]
    chart = curves_chart({name: [(0, 0.0), (9, 1.0)] for name in names}, "x")
    strokes = re.findall(r'style="fill: none; ([^"]*stroke: #[^"]*)"', chart)
    assert len({stroke for stroke in strokes if any(c in stroke for c in COLORS)}) == len(names)


def test_a_legend_stands_below_the_lines():
    chart = curves_chart({"up": [(0, 0.0), (9, 1.0)], "down": [(0, 1.0), (9, 0.0)]}, "x")
    heights = {
        text: float(y) for y, text in re.findall(r'<text [^>]*y="([0-9.]+)"[^>]*>([^<]+)<', chart)
    }
    lowest_tick = max(y for text, y in heights.items() if text not in ("up", "down", "x"))
    assert min(heights["up"], heights["down"]) > lowest_tick


def test_curves_leave_out_what_is_not_finite_and_stay_empty_without_points():
    assert "nan" not in curves_chart({"x": CURVES["train/grad_norm"]}, "x")
    assert curves_chart({"x": [(1, float("nan"))]}, "x") == ""
    assert curves_chart({"x": [(1, float("nan"))], "y": [(1, 2.0)]}, "x") != ""


def test_names_are_shown_as_they_are():
    chart = curves_chart({"<a>": [(0, 1.0), (1, 2.0)], "_b $x_1$": [(0, 1.0)]}, "$\\frac{1}$ & co")
    assert "$\\frac{1}$ &amp; co" in chart
    assert "&lt;a&gt;" in chart
    assert ">_b $x_1$<" in chart


def test_the_same_chart_is_the_same_text():
    rates = {"a": Rate.of([True, False])}
    assert success_chart(rates, {"b": rates}) == success_chart(rates, {"b": rates})


def test_videos_play_with_one_frame_per_action_step(folder):
    import av

    (video,) = (folder / "videos").glob("reach-*.mp4")
    with av.open(str(video)) as container:
        frames = list(container.decode(video=0))
        assert container.streams.video[0].average_rate == 10
    assert len(frames) == 6
    assert (frames[0].width, frames[0].height) == (32, 32)
