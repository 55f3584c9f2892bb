"""Where state lives."""

import os
from pathlib import Path

import pytest

from rrf import workspace


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A workspace, and a user's data folder beside it."""
    monkeypatch.delenv("RRF_HOME", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.rrf]\nworkspace = 1\n")
    return folder


def config(folder, name: str) -> Path:
    path = folder / "configs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_home_is_found_upwards_from_any_folder_of_the_workspace(checkout, monkeypatch):
    (checkout / "a" / "b").mkdir(parents=True)
    (checkout / "a" / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    monkeypatch.chdir(checkout / "a" / "b")
    assert workspace.root() == workspace.home() == checkout
    assert workspace.tracking_uri() == f"sqlite:///{checkout}/.rrf/mlflow.db"


def test_this_repository_is_a_workspace(monkeypatch):
    monkeypatch.delenv("RRF_HOME", raising=False)
    monkeypatch.chdir(Path(__file__).parent)
    assert workspace.home() == Path(__file__).parents[1]


def test_outside_of_any_workspace_the_data_folder_of_the_user_stands_in(
    checkout, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert workspace.root() is None
    assert workspace.home() == tmp_path / "data/rrf"
    assert workspace.state() == tmp_path / "data/rrf/.rrf"
    monkeypatch.setenv("RRF_HOME", str(tmp_path / "named"))
    assert workspace.home() == tmp_path / "named"


@pytest.mark.parametrize("named", [True, False])
def test_a_workspace_of_a_newer_version_is_refused(checkout, monkeypatch, named):
    monkeypatch.chdir(checkout)
    (checkout / "pyproject.toml").write_text("[tool.rrf]\nworkspace = 2\n")
    if named:
        monkeypatch.setenv("RRF_HOME", str(checkout))
    with pytest.raises(
        ValueError, match=r"work is a workspace of version 2, .* install a newer rrf"
    ):
        workspace.home()


def test_a_config_of_the_workspace_comes_before_the_one_that_rrf_ships(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    shipped = workspace.shipped() / "configs/gates/pendulum.yaml"
    assert workspace.find("configs/gates/pendulum.yaml") == shipped
    assert workspace.configs("gates")["pendulum"] == shipped
    own = config(checkout, "gates/pendulum.yaml")
    (checkout / "sub").mkdir()
    monkeypatch.chdir(checkout / "sub")
    assert workspace.find("configs/gates/pendulum.yaml") == own
    assert workspace.configs("gates")["pendulum"] == own
    assert workspace.configs("gates")["cartpole"] == shipped.with_name("cartpole.yaml")
    here = config(checkout / "sub", "gates/pendulum.yaml")
    assert workspace.find("configs/gates/pendulum.yaml") == here.relative_to(Path.cwd())


def test_what_is_nowhere_stays_as_it_is_named_and_only_configs_are_shipped(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    assert workspace.find("configs/gates/none.yaml") == Path("configs/gates/none.yaml")
    assert (workspace.shipped() / "flows").is_dir()
    assert workspace.find("flows") == Path("flows")


def test_the_environment_wins_over_the_defaults(checkout, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(checkout))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    workspace.settle_environment()
    assert workspace.tracking_uri() == "http://127.0.0.1:5000"
    assert workspace.os.environ["OMP_NUM_THREADS"] == "4"
    assert workspace.os.environ["DVC_NO_ANALYTICS"] == "1"


def test_a_dataset_is_named_or_lies_where_its_path_or_address_says(checkout, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(checkout))
    assert workspace.dataset("pick") == checkout / "datasets/pick"
    assert workspace.dataset("elsewhere/pick") == Path("elsewhere/pick")
    assert workspace.dataset("s3://robots/pick") == "s3://robots/pick"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:secret@host:5000/a", "http://host:5000/a"),
        ("https://token@host", "https://host"),
        ("postgresql+psycopg2://ann:se/cr@et@host/db", "postgresql+psycopg2://host/db"),
        ("no store at http://ann:secret@host: refused", "no store at http://host: refused"),
        ("'http://a:secret@x' and 'http://b:secret@y'", "'http://x' and 'http://y'"),
        ("sqlite:////home/ann@lab/.rrf/mlflow.db", "sqlite:////home/ann@lab/.rrf/mlflow.db"),
        ("http://host:5000/#/models/pick@champion", "http://host:5000/#/models/pick@champion"),
        ("s3://robots/pick@2; write to ann@lab", "s3://robots/pick@2; write to ann@lab"),
    ],
)
def test_what_is_shown_of_a_uri_has_no_login(text, shown):
    assert workspace.shown_uri(text) == shown


def test_the_login_of_a_server_moves_to_the_variables_that_mlflow_reads(checkout, monkeypatch):
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "before")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ann:s%2Fcret@host:5000/sub")
    for _ in range(2):
        assert workspace.tracking_uri() == "https://host:5000/sub"
    variables = {name: os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("USERNAME", "PASSWORD")}
    assert variables == {"USERNAME": "ann", "PASSWORD": "s/cret"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ann:secret@host/db")
    assert workspace.tracking_uri() == "postgresql://ann:secret@host/db"
