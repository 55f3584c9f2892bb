from pathlib import Path

import pytest

from rrf.data.checks import severities
from rrf.data.dataset_cfg import dataset_paths, load_dataset_cfg, read_dataset_cfg
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import make_cfg

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs" / "datasets").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_dataset_config_is_valid(path):
    cfg = read_dataset_cfg(path)
    schema = cfg.schema()
    assert len(schema.action.names) == len(schema.action.low) == len(schema.action.high)
    severities(cfg.checks.severity)


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
