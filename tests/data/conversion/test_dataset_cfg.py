from pathlib import Path

import pytest
import yaml

from rrf.data.conversion.dataset_cfg import (
    MergeCfg,
    SourceCfg,
    VectorCfg,
    dataset_paths,
    load_any_cfg,
    load_dataset_cfg,
    local_path,
    read_any_cfg,
    read_dataset_cfg,
)
from rrf.data.conversion.edit_cfg import EditCfg
from rrf.data.conversion.vector_cfg import ConvertCfg
from rrf.data.validation.checks import severities
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs" / "datasets").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_dataset_config_is_valid(path):
    cfg = read_any_cfg(path)
    severities(cfg.checks.severity)
    if isinstance(cfg, MergeCfg | EditCfg):
        return
    assert cfg.schema().action.names


def test_the_demo_dataset_is_what_environment_and_policy_expect():
    schema = read_dataset_cfg(ROOT / "configs/datasets/metaworld-demo.yaml").schema()
    assert schema.fps == 16
    assert schema.image_size == (64, 64)
    assert schema.cameras == ("corner2",)
    assert schema.state.names == ("eef_x", "eef_y", "eef_z", "gripper_opening")
    assert schema.action.names == ("dx", "dy", "dz", "gripper")


def write(tmp_path, text):
    path = tmp_path / "toy.yaml"
    path.write_text(make_cfg().to_yaml() + text)
    return path


def test_a_config_survives_yaml(tmp_path):
    assert read_dataset_cfg(write(tmp_path, "")) == make_cfg()


def test_an_unknown_key_is_an_error_with_file_and_closest_key(tmp_path):
    with pytest.raises(ValueError, match=r"toy\.yaml.*no field 'licens'; did you mean 'licence'"):
        read_dataset_cfg(write(tmp_path, "licens: MIT\n"))


def test_a_name_other_than_the_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="name is 'other', but the file is called 'toy'"):
        read_dataset_cfg(write(tmp_path, "name: other\n"))


@pytest.mark.parametrize("name", ["raw", "converted", "reports"])
def test_a_dataset_cannot_be_called_like_the_directories_beside_it(tmp_path, name):
    path = tmp_path / f"{name}.yaml"
    path.write_text(make_cfg(name=name).to_yaml())
    with pytest.raises(ValueError, match=rf"{name}\.yaml: datasets/{name} holds something else"):
        read_any_cfg(path)


def test_limits_must_fit_the_names():
    with pytest.raises(ValueError, match="low has 2 values for 3 names"):
        make_cfg().action.replace(low=[-1.0, -1.0])


def test_an_unknown_check_is_refused_with_the_closest_one():
    with pytest.raises(ValueError, match="no check 'blank_imgae'; did you mean 'blank_image'"):
        severities({"blank_imgae": "warn"})


def test_an_unknown_dataset_names_the_closest_one(monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(ROOT))
    with pytest.raises(ValueError, match=r"no dataset 'metaworld-dem'.*mean 'metaworld-demo'"):
        load_dataset_cfg("metaworld-dem")


def test_every_form_of_a_dataset_has_its_place(monkeypatch, tmp_path):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    paths = dataset_paths(make_cfg())
    places = [p.relative_to(tmp_path.resolve()).as_posix() for p in vars(paths).values()]
    assert places == [
        "datasets/raw/toy",
        "datasets/converted/toy",
        "datasets/reports/toy",
        "datasets/toy",
    ]


def test_recordings_lie_in_the_repository_elsewhere_or_in_a_bucket(monkeypatch, tmp_path):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert local_path("datasets/raw") == tmp_path.resolve() / "datasets/raw"
    assert local_path("/data/robots") == Path("/data/robots")
    assert local_path("s3://robots/a/b/") == tmp_path.resolve() / ".rrf/s3/robots%2Fa%2Fb"
    commit = "0123456789" * 4
    copy = tmp_path.resolve() / f".rrf/hf/lab%2Fpick@{commit}"
    assert local_path(f"hf://lab/pick@{commit}") == copy
    with pytest.raises(ValueError, match="is not s3://bucket/prefix"):
        local_path("s3://robots/../../etc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": {"format": "rdls", "path": "x"}}, "no format 'rdls'; did you mean 'rlds'"),
        ({"keyframe_interval_s": 2.5}, "keyframe_interval_s is 2.5, must be .* at most 2"),
        ({"image_size": None}, "cameras need an image_size"),
        ({"instruction": {}}, "instruction needs a key, a text, or both"),
        ({"codec": "mpeg2"}, "codec"),
    ],
)
def test_a_field_that_makes_no_sense_is_named(tmp_path, changes, message):
    data = make_cfg().to_dict() | changes
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match=f"toy\\.yaml: (?s:.*){message}"):
        read_dataset_cfg(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "gripper", "names": ["dz"], "open": 1}, "gripper needs open and closed"),
        ({"kind": "gripper", "names": ["dz"], "open": 1, "closed": 1}, "they must differ"),
        ({"kind": "scale", "names": ["dz"], "open": 1}, "scale takes no 'open'"),
        ({"kind": "xyzw_to_wxyz", "names": ["dx"]}, "needs four names"),
        ({"kind": "delta_to_absolute", "names": ["dx"]}, "reference must name one"),
        ({"kind": "scale", "names": []}, "names must not be empty"),
    ],
)
def test_a_conversion_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ConvertCfg(**fields)


def test_conversions_name_known_dimensions():
    action = make_cfg().action
    with pytest.raises(ValueError, match="no dimension 'dw'"):
        action.replace(convert=[ConvertCfg(kind="scale", names=["dw"], factor=2)])
    one = ConvertCfg(kind="delta_to_absolute", names=["dx"], reference=["xx"])
    with pytest.raises(ValueError, match="the state has no dimension 'xx'; did you mean 'x'"):
        make_cfg(action=action.replace(convert=[one]))
    with pytest.raises(ValueError, match="names has 'a' twice"):
        VectorCfg(keys=["k"], names=["a", "a"], unit="m")


def test_a_config_with_everything_survives_yaml(tmp_path):
    action = make_cfg().action.replace(
        deltas=["dx"],
        convert=[ConvertCfg(kind="absolute_to_delta", names=["dy"], reference=["y"], wrap=True)],
    )
    source = SourceCfg(format="rlds", path="s3://a/b", fps=29.97, options={"split": "train"})
    cfg = make_cfg(action=action, source=source, storage="video", codec="av1")
    path = tmp_path / "toy.yaml"
    path.write_text(cfg.to_yaml())
    assert read_dataset_cfg(path) == cfg


MERGE = """
name: both
merge:
  - {dataset: a, weight: 2.0}
  - {dataset: b, cameras: {front: top}}
fill: {state.elbow: 0.5}
licence: MIT
provenance: a and b
"""


def test_a_merged_dataset_is_read_beside_others(monkeypatch, tmp_path):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    folder = tmp_path / "configs/datasets"
    folder.mkdir(parents=True)
    (folder / "both.yaml").write_text(MERGE)
    cfg = load_any_cfg("both")
    assert isinstance(cfg, MergeCfg)
    assert [(part.dataset, part.weight) for part in cfg.merge] == [("a", 2.0), ("b", 1.0)]
    assert dataset_paths(cfg).converted == tmp_path.resolve() / "datasets/converted/both"
    with pytest.raises(ValueError, match="both is merged from other datasets"):
        load_dataset_cfg("both")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("weight: 2.0", "weight: 0", "weight is 0.0, must be positive"),
        ("dataset: b", "dataset: a", "merge names 'a' twice"),
        ("state.elbow", "elbow", "'elbow' is not cameras.NAME"),
        ("state.elbow: 0.5", "cameras.top: 300", "must be a grey level"),
    ],
)
def test_a_merge_that_makes_no_sense_is_refused(tmp_path, old, new, message):
    path = tmp_path / "both.yaml"
    path.write_text(MERGE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_any_cfg(path)
