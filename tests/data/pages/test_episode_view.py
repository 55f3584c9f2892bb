"""The page that shows episodes frame by frame: it needs nothing else and shows what is recorded."""

import base64
import json
import re

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from rrf.cli.data import app
from rrf.data.conversion.convert import convert
from rrf.data.dataset.opening import open_dataset
from rrf.data.images import decode_image
from rrf.data.pages.episode_view import as_picture, view_dataset
from rrf.workspace import HOME_VARIABLE
from tests.browser import browser
from tests.data.conftest import draw, make_cfg, make_demo, write_raw


def data_of(page):
    """What the script has."""
    found = re.search(r"const EPISODES = (.*);\n", page)
    assert found
    return json.loads(found[1])


def pixels(url):
    return decode_image(base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))).astype(int)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A repository with the dataset toy, converted."""
    home = tmp_path_factory.mktemp("home")
    (home / "configs/datasets").mkdir(parents=True)
    data = yaml.safe_load(make_cfg().to_yaml())
    (home / "configs/datasets/toy.yaml").write_text(yaml.safe_dump(data))
    raw = write_raw(home / "datasets/raw/toy", {"pull": [8, 6], "<b>": [5]})
    convert(make_cfg(), raw, home / "datasets/converted/toy")
    return home


def run(*words):
    done = CliRunner().invoke(app, ["view", *map(str, words), "--no-open"])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception


def test_a_converted_dataset_is_shown_by_name(home, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    run("toy", "--episode", "0,2")
    page = (home / "datasets/reports/toy/episodes.html").read_text()
    first, last = data_of(page)
    # files are read in alphabetical order, so the episode that was recorded last comes first
    assert (first["length"], last["length"], first["fps"]) == (5, 6, 10.0)
    episode = open_dataset(home / "datasets/converted/toy", 1).episode(0)
    columns = [*episode.state.T, *episode.action.T, episode.reward, episode.success]
    np.testing.assert_allclose(first["values"], np.array(columns, float), rtol=1e-5)
    (camera,) = first["cameras"]
    for frame, image in enumerate(draw(2, 5)):
        assert np.abs(pixels(camera[frame]) - image).mean() < 12  # JPEG
    assert "episode 2" in page
    assert "do the pull" in page
    assert "m, m, m, fraction" in page
    assert "10, 11, 12" not in page  # dimensions of an image have no names


def test_a_telephone_shows_all_of_it(home, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    run("toy", "--episode", "0,2")
    with browser() as window:
        assert window.cut_at(390, home / "datasets/reports/toy/episodes.html") == []


def test_raw_recordings_are_shown_in_their_own_terms(home, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    run("toy", "--raw", "--episode", "1", "--out", home / "raw.html")
    page = (home / "raw.html").read_text()
    (episode,) = data_of(page)
    assert episode["length"] == 8
    assert re.findall(r"<h3><code>([^<]+)</code>", page) == [
        "actions", "dones", "obs/eef_pos", "obs/gripper_opening", "rewards", "states", "success",
    ]  # fmt: skip
    assert re.findall(r'<img alt="([^"]+)"', page) == ["obs/front_image"]
    assert np.abs(pixels(episode["cameras"][0][7]) - draw(0, 8)[7]).mean() < 12


def test_nothing_is_loaded_from_elsewhere_and_text_stays_text(home, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    run("toy", "--episode", "0-2", "--out", home / "all.html")
    page = (home / "all.html").read_text()
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', page) == []
    assert "http" not in page
    assert page.count("<script>") == page.count("</script>") == 1
    assert "do the &lt;b&gt;" in page


def test_of_a_long_episode_every_kth_frame_is_shown(tmp_path):
    raw = write_raw(tmp_path / "raw", {"pull": [401]})
    cfg = make_cfg(cameras={}, image_size=None)
    convert(cfg, raw, tmp_path / "d")
    view_dataset(tmp_path / "d", "d", [0], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    (episode,) = data_of(page)
    assert episode["frames"] == [*range(0, 401, 2)]
    assert episode["values"][4][:3] == [0.0, 0.02, 0.04]  # action.dx is frame / 100
    assert "Only 201 of these frames are shown" in page


def test_numbers_with_height_and_width_are_shown_as_grey_images():
    depth = np.arange(2 * 8 * 10, dtype=np.uint16).reshape(2, 8, 10) * 300
    picture = as_picture(depth)
    assert picture is not None
    assert (picture.shape, picture.dtype) == ((2, 8, 10, 3), np.uint8)
    assert (picture.min(), picture.max()) == (0, 255)
    far = depth.astype(np.float32)
    far[0, 0, 0] = np.inf
    picture = as_picture(far[..., None])
    assert picture is not None
    assert picture[0, 0, 0].tolist() == [0, 0, 0]
    assert as_picture(make_demo(0, 5)["actions"]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "--episode", "9"], "has no episode 9, only 0 to 2"),
        (
            ["toy", "--raw", "--episode", "3"],
            "there is no episode 3 in datasets/raw/toy, only 0 to",
        ),
        (["toy", "--episode", "0-20"], "21 episodes are asked for; a page shows 1 to 20"),
        (["toy", "--episode", "x"], "'x' is neither an episode"),
        (["tou"], "did you mean 'toy'"),
    ],
)
def test_a_mistake_is_named(home, monkeypatch, words, message):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    with pytest.raises(ValueError, match=message):
        run(*words)
