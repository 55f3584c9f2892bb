"""`rrf data edit`: the config it writes is one that `rrf data convert` runs."""

import pytest
import yaml

from rrf.data.conversion.dataset_cfg import MergeCfg, load_any_cfg
from rrf.data.dataset import layout, parquet
from rrf.data.pages.card import render_card
from rrf.data.validation.summary import read_summary
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg, run
from tests.data.conversion.test_lerobot_writer import content
from tests.data.conversion.test_merge import write


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with the datasets toy, of five episodes, and other, both made already."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    folder = tmp_path / "configs/datasets"
    folder.mkdir(parents=True)
    for name, numbers in (("toy", range(5)), ("other", [5, 6])):
        data = yaml.safe_load(make_cfg(name=name).to_yaml())
        data["checks"] = {"severity": {"constant_dimensions": "off"}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
        for place in ("converted/", ""):
            write(tmp_path / f"datasets/{place}{name}", numbers)
    return tmp_path


def test_an_edit_is_declared_and_then_converted_like_any_dataset(home):
    code, output, _ = run(
        "edit", "clean", "--of", "toy", "--delete", "0,3-4", "--trim-end", "0.2s",
        "--trim-episodes", "2", "--relabel", "task 1=push", "--rename",
        "cameras.front=cameras.head", "--drop", "state.x", "--cut", "2",
    )  # fmt: skip
    assert code == 0
    assert ": 4 episodes, 7 frames of toy" in output
    line = "clean: {raw: datasets/converted/toy, with: requirements.lock}"
    assert f"add to the datasets in dvc.yaml: {line} and run: dvc repro publish@clean" in output
    assert yaml.safe_load((home / "configs/datasets/clean.yaml").read_text()) == {
        "name": "clean",
        "edit_of": "toy",
        "steps": [
            {"delete": [0, "3-4"]},
            {"trim": {"end_s": 0.2, "episodes": [2]}},
            {"relabel": {"instructions": {"task 1": "push"}}},
            {"rename": {"cameras.front": "cameras.head"}},
            {"drop": ["state.x"]},
            {"cut": 2},
        ],
        "checks": {"severity": {"constant_dimensions": "off"}},
    }
    before = content(home / "datasets/converted/toy")
    code, output, _ = run("convert", "clean")
    assert code == 0
    assert "7 frames in" in output
    assert content(home / "datasets/converted/toy") == before
    root = home / "datasets/converted/clean"
    assert layout.read_info(root)["features"]["observation.state"]["names"] == ["y"]
    card = render_card(read_summary(root), None)
    assert "Edited from `toy` (sha256 `" in card
    assert '- delete: `[0, "3-4"]`' in card


def test_a_split_becomes_one_dataset_per_part(home):
    code, output, _ = run("edit", "toy", "--of", "toy", "--split", "a=0.6", "--split", "b=0.4")
    assert code == 0
    assert "dvc repro publish@toy-a publish@toy-b" in output
    numbers = []
    for name in ("toy-a", "toy-b"):
        assert run("convert", name)[0] == 0
        table = parquet.read_episodes(home / f"datasets/converted/{name}")
        numbers += table["origin_episode"].tolist()
    assert sorted(numbers) == [0, 1, 2, 3, 4]
    words = ("edit", "x", "--of", "toy", "--split", "a=0-2", "--split", "b=4")
    assert run(*words)[0] == 0
    assert load_any_cfg("x-b").to_dict()["steps"][0]["keep"] == [4]


def test_datasets_that_hold_the_same_are_merged(home):
    code, output, _ = run("edit", "both", "--of", "toy", "--of", "other")
    assert code == 0
    assert "both: {raw: datasets/toy, with: datasets/other}" in output
    cfg = load_any_cfg("both")
    assert isinstance(cfg, MergeCfg)
    assert [part.dataset for part in cfg.merge] == ["toy", "other"]
    assert run("convert", "both")[0] == 0
    assert len(parquet.read_episodes(home / "datasets/converted/both")) == 7


def test_all_differences_of_datasets_to_merge_are_listed(home):
    write(home / "datasets/other", [5], cameras=("top",), image_size=(8, 8), fps=20)
    _, _, error = run("edit", "both", "--of", "toy", "--of", "other")
    assert str(error).splitlines()[:4] == [
        "these datasets do not hold the same:",
        "  toy has 10 frames/s, other 20",
        "  only toy has observation.images.front",
        "  only other has observation.images.top",
    ]
    assert not (home / "configs/datasets/both.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "--of", "toy", "--delete", "1"], "there is a dataset 'toy' already"),
        (["raw", "--of", "toy", "--delete", "1"], "datasets/raw holds something else"),
        (["a/b", "--of", "toy", "--delete", "1"], "'a/b' is no name of a dataset"),
        (["new", "--of", "tpy", "--delete", "1"], "no dataset 'tpy' in"),
        (["new", "--of", "toy"], "there is nothing to do"),
        (["new", "--of", "toy", "--delete", "9"], "there is no episode 9, only 0 to 4"),
        (["new", "--of", "toy", "--delete", "x"], "'x' is neither an episode"),
        (["new", "--of", "toy", "--trim-end", "1m"], "--trim-end is '1m', but must be frames"),
        (["new", "--of", "toy", "--trim-episodes", "1"], "needs --trim-start or --trim-end"),
        (["new", "--of", "toy", "--rename", "cameras.front"], "must be of the form OLD=NEW"),
        (["new", "--of", "toy", "--split", "a=0-2", "--split", "b=2"], "episode 2 is in both 'a'"),
        (["new", "--of", "toy", "--split", "a=0.5", "--split", "b=2"], "a fraction for every part"),
        (["new", "--of", "toy", "--of", "other", "--keep", "1"], "several --of are merged"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_and_nothing_is_written(home, words, message):
    before = content(home / "configs")
    _, _, error = run("edit", *words)
    assert isinstance(error, ValueError)
    assert message in str(error)
    assert content(home / "configs") == before
