"""A store of the MLflow before is not touched until it is backed up and upgraded."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rrf import atomic
from rrf.backup.backup import restore, write
from rrf.mlflow_store import store
from rrf.registry import listing, promotion
from tests.backup.conftest import NAME, elsewhere


@pytest.fixture
def older(home, champion) -> str:
    """The address of the store, as the MLflow before has left it."""
    import mlflow
    from alembic import command
    from alembic.config import Config

    uri = f"sqlite:///{home}/.rrf/mlflow.db"
    cfg = Config()
    cfg.set_main_option("script_location", f"{Path(mlflow.__file__).parent}/store/db_migrations")
    cfg.set_main_option("sqlalchemy.url", uri)
    with store.engine(uri).begin() as connection:
        cfg.attributes["connection"] = connection
        command.downgrade(cfg, "-1")
    store._prepare.cache_clear()
    return uri


def revision(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT version_num FROM alembic_version").fetchone()[0]


@pytest.mark.slow
def test_an_older_store_is_upgraded_after_a_backup_and_goes_back_from_it(
    home, champion, older, file, monkeypatch
):
    path = home / ".rrf/mlflow.db"
    before = revision(path)
    with pytest.raises(OSError, match="has the tables of an older MLflow") as told:
        store.connect()
    assert f"rrf backup before.tar; mlflow db upgrade {older}" in str(told.value)
    assert revision(path) == before  # nothing was changed
    write(file)
    upgrade = [sys.executable, "-m", "mlflow", "db", "upgrade", older]
    subprocess.run(upgrade, check=True, capture_output=True)
    assert revision(path) != before
    assert promotion.ledger_of(NAME).champion == champion
    assert listing.problems() == []
    promotion.promote(NAME, "2")
    # The way back: the state from before the upgrade, for the release from before it.
    atomic.remove(home / ".rrf")
    restore(file)
    assert revision(path) == before


@pytest.mark.slow
def test_a_store_of_a_newer_mlflow_is_left_alone(home, champion, monkeypatch):
    path = home / ".rrf/mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE alembic_version SET version_num = 'fffffff'")
    store._prepare.cache_clear()
    with pytest.raises(OSError, match="of a newer MLflow \\(fffffff\\); install the rrf that the"):
        store.connect()
    elsewhere(home, monkeypatch)
    store.connect()  # a new store is made there
