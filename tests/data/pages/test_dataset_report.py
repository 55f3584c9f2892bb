"""The page to look at a dataset needs nothing else and shows what is in it."""

import base64
import io
import re

import av
import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.images import decode_image
from rrf.data.pages.dataset_report import choose_episodes, markdown_html, write_report
from rrf.data.validation.summary import DatasetPlace, EpisodeSummary
from rrf.pages.charts import COLORS, histogram, lines
from tests.browser import browser
from tests.data.conftest import draw, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import write_v2


def page_of(root, out, reports=None):
    write_report(DatasetPlace("toy", root, reports), out)
    return out.read_text()


def clips(page):
    """Per clip its images, [T, H, W, 3], and frames per second."""
    found = []
    for text in re.findall(r'src="data:video/mp4;base64,([^"]+)"', page):
        with av.open(io.BytesIO(base64.b64decode(text))) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264"
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
            assert stream.average_rate is not None
            found.append((np.stack(frames), float(stream.average_rate)))
    return found


def pictures(page):
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [decode_image(base64.b64decode(text)) for text in found]


@pytest.fixture(scope="module", params=["image", "video"])
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = write_raw(folder / "raw", {"pull": [8, 6, 7], "push": [5, 10]})
    convert(make_cfg(storage=request.param), raw, folder / "d")
    return page_of(folder / "d", folder / "page.html")


def test_nothing_is_loaded_from_elsewhere(page):
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page) == []
    assert "<script" not in page
    assert "http" not in page


def test_a_telephone_shows_all_of_it(page, tmp_path):
    (tmp_path / "page.html").write_text(page)
    with browser() as window:
        assert window.cut_at(390, tmp_path / "page.html") == []


def test_clips_and_frames_show_the_episodes(page):
    shown = clips(page)
    assert [len(images) for images, _ in shown] == [8, 6, 7, 5, 10]
    assert {fps for _, fps in shown} == {10.0}
    for episode, (images, _) in enumerate(shown):
        assert np.abs(images.astype(int) - draw(episode, len(images))).mean() < 8
    assert page.count("class=tiny") == 5  # pixels are shown as they are
    stills = pictures(page)
    assert len(stills) == 25
    truth = draw(4, 10)[[0, 2, 4, 7, 9]]
    assert np.abs(np.stack(stills[20:]).astype(int) - truth).mean() < 8


def test_instructions_dimensions_and_card_are_on_it(page):
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    assert "do the pull 3 21" in text
    assert "do the push 2 15" in text
    for name in ("dx", "dy", "dz", "gripper"):
        assert f"<code>{name}</code>" in page
    assert page.count("constant") == 1  # the gripper of the state
    assert page.count("stroke-opacity: 0.8") == 5 * (4 + 3 + 1 + 1)
    assert "no validation report" in page
    assert "<h2>Licence</h2>" in page
    assert "license: mit" not in page


def test_it_links_to_what_validation_wrote(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "converted/toy")
    reports = tmp_path / "reports/toy"
    page = page_of(tmp_path / "converted/toy", reports / "dataset.html", reports)
    assert 'href="#values"' in page
    assert "validation.html" not in re.findall('href="([^"]*)"', page)
    (reports / "data_docs/site").mkdir(parents=True)
    for name in ("validation.html", "data_docs/site/index.html"):
        (reports / name).write_text("")
    page = page_of(tmp_path / "converted/toy", tmp_path / "pages/toy.html", reports)
    links = [link for link in re.findall('href="([^"]*)"', page) if "#" not in link]
    assert links == ["../reports/toy/validation.html", "../reports/toy/data_docs/site/index.html"]


def test_the_same_dataset_gives_the_same_page(tmp_path, raw, cfg):
    convert(cfg, raw, tmp_path / "d")
    assert page_of(tmp_path / "d", tmp_path / "a.html") == page_of(
        tmp_path / "d", tmp_path / "b.html"
    )


def test_a_foreign_dataset_has_a_page(tmp_path):
    root = write_v2(tmp_path / "d", {3: 4, 7: 6}, version="v2.0", extra_frames=1)
    page = page_of(root, tmp_path / "page.html")
    assert [len(images) for images, _ in clips(page)] == [4, 6]
    assert "episode 7: 6 frames" in page


def test_a_dataset_of_states_alone_has_a_page(tmp_path, raw):
    convert(make_cfg(cameras={}, image_size=None), raw, tmp_path / "d")
    page = page_of(tmp_path / "d", tmp_path / "page.html")
    assert clips(page) == []
    assert "<code>dx</code>" in page


def test_text_of_the_dataset_is_only_text(tmp_path, raw):
    cfg = make_cfg(provenance="<script>alert(1)</script>", robot_type="<img src=x>")
    convert(cfg, raw, tmp_path / "d")
    page = page_of(tmp_path / "d", tmp_path / "page.html")
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_long_clips_are_thinned_and_keep_their_speed(tmp_path):
    write_raw(tmp_path / "raw", {"pull": [300]})
    convert(make_cfg(), tmp_path / "raw", tmp_path / "d")
    ((images, fps),) = clips(page_of(tmp_path / "d", tmp_path / "page.html"))
    assert (len(images), fps) == (150, 5.0)
    assert np.abs(images[-1].astype(int) - draw(0, 300)[298]).mean() < 8


def test_large_images_are_shown_small(tmp_path):
    write_raw(tmp_path / "raw", {"pull": [3]}, size=300)
    convert(make_cfg(image_size=[300, 300]), tmp_path / "raw", tmp_path / "d")
    page = page_of(tmp_path / "d", tmp_path / "page.html")
    assert clips(page)[0][0].shape == (3, 256, 256, 3)
    assert pictures(page)[0].shape == (128, 128, 3)
    assert "class=tiny" not in page


def test_every_frequent_instruction_is_shown_and_else_the_dataset_is_spread_over():
    words = ["a", "a", "b", "a", "c", "a", "a", "a", "a", "b"]
    episodes = [EpisodeSummary(i, 5, word) for i, word in enumerate(words)]
    assert [one.number for one in choose_episodes(episodes, 3)] == [0, 2, 4]
    assert [one.number for one in choose_episodes(episodes, 2)] == [0, 2]
    assert [one.number for one in choose_episodes(episodes[5:9], 3)] == [5, 7, 8]
    assert [one.number for one in choose_episodes(episodes[:1], 3)] == [0]


def points(path):
    """The corners of a path of straight lines, [N, 2]."""
    return np.array(re.findall(r"-?[0-9.]+", path), float).reshape(-1, 2)


def test_curves_lie_between_the_smallest_and_the_largest_value():
    svg = lines([np.array([0.0, 10.0]), np.array([5.0, np.nan, 10.0])])
    short, long = [
        points(re.findall(rf'd="([^"]+)" style="fill: none; stroke: {color}', svg)[0])
        for color in COLORS[:2]
    ]
    (left, bottom), (middle, top) = short
    assert long[0] == pytest.approx([left, (bottom + top) / 2], abs=1e-3)
    assert long[1] == pytest.approx([2 * middle - left, top], abs=1e-3)
    assert bottom > top
    assert ">0</text>" in svg
    assert ">10</text>" in svg
    assert "no values" in lines([np.array([np.nan])])


def test_bars_of_a_histogram_are_as_high_as_their_counts():
    svg = histogram(np.array([0.0, 0.0, 0.0, 12.0, np.nan]), "#123456")
    [path] = re.findall(r'd="([^"]+)" style="fill: #123456', svg)
    bars = points(path.replace("z", ""))
    ground = bars[:, 1].max()
    first, last = bars[bars[:, 0] < bars[:, 0].mean()], bars[bars[:, 0] > bars[:, 0].mean()]
    assert ground - first[:, 1].min() == pytest.approx(3 * (ground - last[:, 1].min()), rel=1e-4)
    assert ">0</text>" in svg
    assert ">12</text>" in svg
    assert histogram(np.array([1.0, 2.0])) == histogram(np.array([1.0, 2.0]))
    assert histogram(np.array([3.0, 3.0])).count(">3</text>") == 2
    assert "no values" in histogram(np.array([np.nan]))


def test_markdown_becomes_html_and_html_in_it_stays_text():
    html = markdown_html("---\nlicense: mit\n---\n\n# T\n\n| a |\n| --- |\n| <b> |\n")
    assert html.startswith("<h1>T</h1>")
    assert "<td>&lt;b&gt;</td>" in html
