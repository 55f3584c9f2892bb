"""The report: self-contained, with every part it should have, and safe against odd names."""

import html.parser
import re

import numpy as np
import pytest

from rrf.evaluation.gates.gate import GateCfg, verdict
from rrf.evaluation.reports.charts import curves_chart, success_chart
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.reports.videos import choose_for_video, save_videos
from rrf.evaluation.results import Rate
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.protocol import ProtocolCfg
from rrf.evaluation.vla.replay import replay
from tests.evaluation.point_mass import GoTowards, PointMassVecEnv

PROTOCOL = ProtocolCfg(
    name="point <mass>",
    tasks=["reach", "far"],
    seed=4242,
    episodes_per_task=5,
    max_episode_steps=12,
)
LINEAGE = {"dataset": "demo", "dataset_md5": "0123.dir", "missing": ["raw_md5: run `dvc add`"]}
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
    verdict(report, gate).save(tmp_path / "verdict-g.json")
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
    assert len(page.links) == 4
    assert all(link.startswith("data:") for link in page.links)
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(|@import", text)
    words = " ".join(page.text.split())
    assert "50.0% success, all tasks" in words
    assert "23.7% 76.3%" in words
    assert "gate g: fail" in words
    assert "overall: 5/10 solved" in words
    assert "dataset_md5 0123.dir" in words
    assert "git_revision not recorded" in words
    assert "missing: raw_md5" in words
    assert "loss/total" in words
    assert "still 0.0% 5 0 +50.0%" in words
    assert "point <mass>" in words
    assert "Evaluation of A & B" in words


def test_a_verdict_on_an_earlier_evaluation_is_left_out(folder):
    longer = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL.extended(1), label="longer")
    longer.save(folder / "evaluation.json")
    assert "gate g: fail" not in write_report(folder).read_text()


def test_a_report_without_videos_curves_or_verdict_is_still_whole(tmp_path):
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    report.save(tmp_path / "evaluation.json")
    page = Page(write_report(tmp_path).read_text())
    assert page.tags.count("section") == 4


def test_bars_and_bounds_stand_where_the_numbers_say():
    chart = success_chart({"t": Rate.of([True, False])}, {})
    # the row begins at 210 and is 430 wide; Wilson for 1/2 is .0945 to .9055
    assert 'width="215.0"' in chart
    assert "M250.6 19.0H599.4" in chart


def test_curves_leave_out_what_is_not_finite_and_stay_empty_without_points():
    assert "nan" not in curves_chart({"x": CURVES["train/grad_norm"]}, "x")
    assert curves_chart({"x": [(1, float("nan"))]}, "x") == ""


def test_videos_play_with_one_frame_per_action_step(folder):
    import av

    (video,) = (folder / "videos").glob("reach-*.mp4")
    with av.open(str(video)) as container:
        frames = list(container.decode(video=0))
        assert container.streams.video[0].average_rate == 10
    assert len(frames) == 6
    assert (frames[0].width, frames[0].height) == (32, 32)
