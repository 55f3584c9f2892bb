"""Where state lives."""

import os
from pathlib import Path

import pytest

from rrf import workspace


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("RRF_HOME", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "configs").mkdir()
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_home_is_found_upwards_from_any_folder_of_the_checkout(checkout, monkeypatch):
    (checkout / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(checkout / "a" / "b")
    assert workspace.home() == checkout
    assert workspace.tracking_uri() == f"sqlite:///{checkout}/.rrf/mlflow.db"


def test_outside_a_checkout_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("RRF_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match="is not inside an rrf repository; cd into one, or export RRF_HOME"
    ):
        workspace.home()


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
