"""`rrf data show`, `report`, `diff` and `card`."""

import re
import shutil

import pytest
from typer.testing import CliRunner

from rrf.cli.data import app
from rrf.data.dataset import layout
from rrf.data.dataset.layout import NORM_STATS
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import edit_column, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import write_v2


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with the dataset toy, converted."""
    write_raw(tmp_path / "datasets/raw/toy", {"pull": [8, 6, 7], "push": [5, 10]})
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / "configs/datasets/toy.yaml").write_text(make_cfg().to_yaml())
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    run("convert", "toy", "--workers", 1)
    return tmp_path


def run(*words, code=0):
    """The output of a command, on one line."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return re.sub(r"\s+", " ", done.output)


def test_show_takes_a_name_or_the_directory_of_any_lerobot_dataset(home):
    shown = run("show", "toy")
    assert "toy: 5 episodes, 36 frames, 3.6 s" in shown
    assert "datasets/converted/toy: LeRobot v3.0, 10 frames/s, robot unknown" in shown
    for cells in ("do the pull │ 3 │ 21", "do the push │ 2 │ 15", "action.dx │ 0 │"):
        assert cells in shown
    write_v2(home / "foreign", {2: 4, 5: 6}, version="v2.0", extra_frames=1)
    foreign = run("show", "./foreign")
    assert "foreign: 2 episodes, 10 frames, 1.0 s" in foreign
    assert "LeRobot v2.0" in foreign
    assert "pull the lever │ 1 │ 4" in foreign
    assert "action.1 │ -0.05 │" in foreign


def test_report_and_card_of_a_directory_lie_where_asked(home):
    root = write_v2(home / "foreign", {2: 4})
    assert "report: foreign.html" in run("report", "./foreign")
    assert "<title>foreign</title>" in (home / "foreign.html").read_text()
    run("report", root, "--out", "pages/p.html")
    assert (home / "pages/p.html").is_file()
    assert "# foreign" in run("card", "./foreign")
    run("card", "./foreign", "--out", "CARD.md")
    assert "names no licence" in (home / "CARD.md").read_text()
    assert sorted(path.name for path in root.iterdir()) == ["data", "meta", "videos"]


def test_diff_is_0_for_the_same_and_1_for_others(home):
    shutil.copytree(home / "datasets/converted/toy", home / "other")
    assert "the datasets are the same" in run("diff", "toy", "./other")
    assert "images were not compared" in run("diff", "toy", "./other", "--no-images")
    edit_column(home / "other", "action", {9: [0.5, -0.01, 0.25]})
    found = run("diff", "toy", "./other", code=1)
    assert "changed │ 1 │ 6 │ do the pull │ action" in found
    assert "4 episodes are the same (0 under another number), 1 changed, 0 added, 0 rem" in found
    assert "action.dx │" in found


def test_diff_lists_what_is_added_and_removed(home):
    write_raw(home / "raw", {"pull": [8, 6], "twist": [4]})
    path = home / "configs/datasets/more.yaml"
    path.write_text(make_cfg(name="more").to_yaml().replace("datasets/raw/toy", "raw"))
    run("convert", "more", "--workers", 1, "--out", home / "more")
    found = run("diff", "toy", "./more", code=1)
    assert "episodes │ 5 │ 3" in found
    assert "frames │ 36 │ 18" in found
    assert "removed │ 4 │ 10 │ do the push" in found


def test_a_mistake_ends_in_an_error_and_writes_nothing(home):
    before = sorted(home.rglob("*"))
    for words in (("show", "toi"), ("report", "./none"), ("diff", "toy", "toi"), ("card", "a@b")):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, ValueError), words
    data = home / "datasets/converted/toy" / layout.DATA_PATH.format(chunk_index=0, file_index=0)
    data.write_bytes(data.read_bytes()[:500])
    for words in (("report", "toy"), ("card", "toy"), ("show", "toy"), ("diff", "toy", "toy")):
        done = CliRunner().invoke(app, words)
        assert "file-000.parquet is truncated or not parquet" in str(done.exception)
    assert sorted(home.rglob("*")) == before


@pytest.mark.slow
def test_a_published_dataset_has_its_card_and_a_report_beside_validation(home):
    run("validate", "toy")
    run("stats", "toy")
    root = home / "datasets/toy"
    card = (root / "README.md").read_text()
    assert "Passed: " in card
    assert "[validation.html](../reports/toy/validation.html)" in card
    (root / "README.md").unlink()
    assert "card: datasets/toy/README.md" in run("card", "toy")
    assert (root / "README.md").read_text() == card
    (root / "README.md").unlink()
    assert "# toy" in run("card", "datasets/toy")
    assert not (root / "README.md").exists()  # a directory given by its path stays as it is
    assert "datasets/toy: LeRobot v3.0" in run("show", "toy")
    assert "report: datasets/reports/toy/dataset.html" in run("report", "toy")
    page = (home / "datasets/reports/toy/dataset.html").read_text()
    assert page.count('href="validation.html"') == 2  # at the top and in the card
    assert "validation passed" in re.sub(r"\s+", " ", page)
    assert (root / NORM_STATS).is_file()
    assert "the datasets are the same" in run("diff", "toy", "./datasets/converted/toy")
