"""Messages about data say what this user can type."""

import numpy as np
import pytest
import yaml

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.conversion_record import by_kind, read_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg, VectorCfg
from rrf.data.dataset.opening import open_dataset
from rrf.data.remedies import again, bring
from rrf.data.validation.summary import find_dataset, read_summary
from rrf.data.validation.validate import read_report, validate
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg
from tests.data.fixtures_lerobot_v2 import CAMERA, change_columns, data_path, write_v2

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A workspace whose dvc.yaml has stages for "staged"; "mine" has a config alone."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    for name in ("staged", "mine"):
        path = tmp_path / f"configs/datasets/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_cfg(name=name).to_yaml())
    (tmp_path / "dvc.yaml").write_text("vars: [{datasets: {staged: {raw: x, with: y}}}]\n")
    return tmp_path


def test_what_makes_a_dataset_again_is_what_this_workspace_has(home):
    assert again(home / "datasets/staged") == "run: dvc repro --pull publish@staged"
    file = home / "datasets/converted/staged/data/chunk-000/file-000.parquet"
    assert again(file) == "run: dvc repro --pull publish@staged"
    by_hand = "run: rrf data convert mine && rrf data validate mine && rrf data stats mine"
    assert again(home / "datasets/mine") == again(home / "datasets/reports/mine") == by_hand
    assert "no configs/datasets/mina.yaml that says how it is made; did you mean 'mine'" in again(
        home / "datasets/mina"
    )
    assert again(home / "elsewhere", "copy it") == "copy it"


@pytest.mark.parametrize(
    "do",
    [
        lambda root: open_dataset(root, 1),
        lambda root: read_report(root.parent / "reports/mine"),
        lambda root: find_dataset("mine"),
        lambda root: validate("mine", root, ChecksCfg(), root.parent / "reports/mine"),
    ],
    ids=["train", "publish", "show", "validate"],
)
def test_no_message_about_a_dataset_without_a_stage_names_dvc(home, do):
    with pytest.raises(ValueError, match="run: rrf data convert mine") as caught:
        do(home / "datasets/mine")
    assert "dvc" not in str(caught.value).replace(str(home), "")


def test_recordings_that_dvc_has_are_told_from_those_that_it_has_not(home):
    (home / "recordings").mkdir()
    (home / "recordings/toy.dvc").write_text(yaml.safe_dump({"outs": [{"path": "toy"}]}))
    assert bring(home / "recordings/toy/a.hdf5") == "run: dvc pull recordings/toy.dvc"
    (home / "all.dvc").write_text(yaml.safe_dump({"outs": [{"path": "raw"}]}))
    assert bring(home / "raw/robosuite") == (
        "run: dvc pull all.dvc; what it does not bring is recorded as the dataset's config says"
    )
    assert bring(home / "recordings/other").startswith("see source.path in the dataset's config")


def lerobot_cfg():
    return make_cfg(
        source=SourceCfg(format="lerobot", path="x"),
        cameras={"front": CAMERA},
        state=VectorCfg(keys=["observation.state"], names=["a", "b", "c", "d"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy"], unit="m"),
        reward=None,
        success=None,
    )


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("data/**/*.parquet", 3), ("videos/**/*.mp4", 3), ("meta/info.json", 1), ("meta/*.jsonl", 2)],
)
def test_pointers_of_git_lfs_are_named(tmp_path, pattern, count):
    root = write_v2(tmp_path / "v2", {0: 5, 1: 4, 2: 4})
    for path in root.glob(pattern):
        path.write_text(LFS)
    others = f", and {count - 1} more in " if count > 1 else ""
    message = rf"{others}.*it is a pointer of Git LFS and not the file itself; run: git lfs pull"
    with pytest.raises(ValueError, match=message):
        convert(lerobot_cfg(), root, tmp_path / "d")
    if not pattern.startswith("videos"):  # which a summary does not open
        with pytest.raises(ValueError, match=r"run: git lfs pull"):
            read_summary(root)


def test_a_pointer_of_git_annex_is_named(tmp_path):
    root = write_v2(tmp_path / "v2", {0: 5, 1: 4})
    for path in root.glob("data/**/*.parquet"):
        path.unlink()
        path.symlink_to("../../.git/annex/objects/a/b/SHA256E-s1--c")
    with pytest.raises(ValueError, match=r"pointer of git-annex .* run: git annex get"):
        convert(lerobot_cfg(), root, tmp_path / "d")


def test_many_warnings_of_a_kind_are_one(tmp_path):
    root = write_v2(tmp_path / "v2", dict.fromkeys(range(12), 5), "v2.1", "image")
    for number in range(12):
        texts = [str(row) for row in np.arange(20.0).reshape(5, 4).tolist()]
        change_columns(data_path(root, number), **{"observation.state": texts})
    done = convert(lerobot_cfg(), root, tmp_path / "d")
    (json_text,) = [text for text in done.warnings if "JSON text, converted" in text]
    assert json_text.endswith(
        "episode_000000.parquet:episode_0: observation.state is JSON text, "
        "converted to float64[4] (and 11 more warnings of this kind)"
    )
    record = read_conversion(tmp_path / "d")
    assert record is not None
    assert len(record["warnings"]) == len(done.warnings) < 5


def test_warnings_that_name_different_things_are_not_one():
    cameras = [f"observation.images.cam_{n} is a depth map and left out" for n in range(9)]
    assert by_kind(cameras, "/raw") == cameras
    few = [f"/raw/{n}.hdf5: {n} of 9 episodes failed" for n in range(3)]
    assert by_kind(few, "/raw") == few
    assert by_kind([*few, "/raw/4.hdf5: 4 of 9 episodes failed"], "/raw") == [
        "/raw/0.hdf5: 0 of 9 episodes failed (and 3 more warnings of this kind)"
    ]
