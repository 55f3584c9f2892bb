"""A backup made while others write holds everything that it names, and is restored whole."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rrf import atomic
from rrf.backup import databases
from rrf.backup.backup import check, restore, write
from rrf.cli.doctor import ledgers
from rrf.mlflow_store import store
from rrf.registry import ledger, listing, promotion
from rrf.registry.loading import fetch
from rrf.serving.book import Actor, Book, Outcome
from tests import postgres
from tests.backup.conftest import NAME, elsewhere
from tests.registry.conftest import new_run, register

ROOT = Path(__file__).parents[2]


def prefect_database(home: Path) -> Path:
    """A database as Prefect's server keeps it open, with a log beside it."""
    path = home / ".rrf/prefect/prefect.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE flow_run (name TEXT)")
        file.execute("INSERT INTO flow_run VALUES ('night')")
    return path


def names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def check_sound(champion: str, versions: list[str], out: Path) -> None:
    """The ledger, the aliases and the policies of a restored workspace are whole."""
    assert promotion.ledger_of(NAME).champion == champion
    assert listing.problems() == []
    assert [status for status, *_ in ledgers()] == ["[green]ok[/green]"]
    assert sorted(v.version for v in listing.versions(NAME)) == versions
    for version in versions:
        fetch(f"{NAME}/{version}", out / version)


def test_a_restored_workspace_has_champion_ledger_runs_and_prefects_database(
    home, champion, file, monkeypatch
):
    flow_runs = sqlite3.connect(prefect_database(home))  # its server goes on
    made = write(file)
    assert made.databases == {"prefect": "sqlite", "mlflow": "sqlite"}
    flow_runs.close()
    assert {"state/login", "state/pids/mlflow.json"} & names(file) == set()
    seen = ledger.remembered(NAME)
    other = elsewhere(home, monkeypatch)
    assert check(file) == made
    assert made.num_files == len(names(file)) - 1
    assert not (other / ".rrf").exists()
    assert restore(file).num_files == made.num_files
    assert ledger.remembered(NAME) == seen  # under the address that the store has here
    check_sound(champion, ["1", "2"], other / "policies")
    weights = "model.safetensors"
    assert atomic.sha256(other / "policies/1" / weights) == atomic.sha256(
        home / "checkpoints/1" / weights
    )
    atomic.check_manifest(other / ".rrf/runs/cup/global_step_4")
    assert not (other / ".rrf/login").exists()
    with sqlite3.connect(other / ".rrf/prefect/prefect.db") as restored:
        assert restored.execute("SELECT name FROM flow_run").fetchall() == [("night",)]
    promotion.promote(NAME, "2")  # it is a store like any other


@pytest.mark.slow
def test_what_is_registered_and_promoted_between_its_steps_leaves_a_backup_sound(
    home, champion, file, add, monkeypatch
):
    prefect_database(home)
    dump, seeds = databases.Database.dump, iter((3, 4))

    def dump_and_go_on(self, target):
        dump(self, target)
        version, _ = add(next(seeds))
        promotion.promote(NAME, version)

    monkeypatch.setattr(databases.Database, "dump", dump_and_go_on)
    write(file)
    assert promotion.ledger_of(NAME).champion == "4"
    other = elsewhere(home, monkeypatch)
    restore(file)
    check_sound("3", ["1", "2", "3"], other / "policies")  # as when MLflow's database was copied


def test_the_login_is_in_it_only_if_somebody_asks(home, champion, file, monkeypatch):
    write(file, with_login=True)
    other = elsewhere(home, monkeypatch)
    restore(file)
    assert (other / ".rrf/login").read_text() == "rrf:secret\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from rrf.backup import archive, backup
def end(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(*{where}, end)
backup.{what}(Path(sys.argv[1]))
"""


def killed(home: Path, what: str, where: str, file: Path) -> None:
    """Run `rrf.backup.backup.WHAT`, which is killed when it comes to `where`."""
    code = KILLED.format(what=what, where=where)
    env = os.environ | {"RRF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, file], cwd=ROOT, env=env, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_backup_leaves_nothing_that_looks_like_one_and_the_next_one_clears_up(
    home, champion, file
):
    killed(home, "write", "(archive.Writer, 'close')", file)
    assert not file.exists()
    (part,) = file.parent.iterdir()
    with pytest.raises(ValueError, match=r"no whole backup|has no manifest\.json"):
        check(part)
    assert any((home / ".rrf/backup").iterdir())
    write(file)
    assert list(file.parent.iterdir()) == [file]
    assert not (home / ".rrf/backup").exists()
    assert check(file).num_files > 10


@pytest.mark.slow
def test_a_killed_restoration_leaves_no_state_and_the_next_one_succeeds(
    home, champion, file, monkeypatch
):
    write(file)
    other = elsewhere(home, monkeypatch)
    killed(other, "restore", "(backup, '_rename_memory')", file)
    assert not (other / ".rrf").exists()
    restore(file)
    check_sound(champion, ["1", "2"], other / "policies")
    assert [p.name for p in other.iterdir() if p.name.startswith(".tmp")] == []


def test_a_state_that_is_there_and_a_file_that_is_there_stay_as_they_are(home, champion, file):
    before = ledger.remembered(NAME)
    write(file)
    content = file.read_bytes()
    with pytest.raises(ValueError, match=r"there is a state in .*; mv .*/\.rrf .*/\.rrf-before"):
        restore(file)
    with pytest.raises(ValueError, match=r"one\.tar exists; name another file"):
        write(file)
    with pytest.raises(ValueError, match="which is to be copied; name a file elsewhere"):
        write(home / ".rrf/one.tar")
    assert file.read_bytes() == content
    assert ledger.remembered(NAME) == before


def test_without_a_state_there_is_nothing_to_back_up(home, champion, file, monkeypatch):
    elsewhere(home, monkeypatch)
    with pytest.raises(ValueError, match=r"there is no .*/\.rrf: nothing to back up"):
        write(file)
    assert not file.exists()


def test_only_one_backup_is_made_at_a_time(home, champion, file):
    with atomic.alone(home / ".rrf/backup", "busy"), pytest.raises(ValueError, match="wait for it"):
        write(file)
    assert not file.exists()


def test_a_store_of_another_kind_is_not_filled(home, champion, file, monkeypatch):
    write(file)
    other = elsewhere(home, monkeypatch)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match="names a server here; unset MLFLOW_TRACKING_URI"):
        restore(file)
    assert not (other / ".rrf").exists()


def test_a_damaged_database_is_named_and_not_backed_up(home, champion, file):
    path = home / ".rrf/mlflow.db"
    with path.open("r+b") as database:
        database.seek(3 * 4096)
        database.write(b"\xff" * 4096 * 20)
    with pytest.raises(OSError, match=r"MLflow's store at .*mlflow\.db"):
        write(file)
    assert list(file.parent.iterdir()) == []


@pytest.mark.slow
def test_postgresql_and_artifacts_in_a_bucket_are_backed_up_and_restored(
    home, file, monkeypatch, s3
):
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", s3.endpoint)
    s3.put("s3://first/rrf/policies/of-others", b"")
    s3.put("s3://second/x", b"")
    with postgres.server() as uri:
        postgres.create(uri, "prefect", "restored", "prefect2")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv(databases.PREFECT_URL, postgres.named(uri, "prefect", "asyncpg"))
        monkeypatch.setenv("RRF_ARTIFACT_ROOT", "s3://first/rrf/policies")
        postgres.query(uri, "prefect", "CREATE TABLE flow_run AS SELECT 'night' AS name")
        run = new_run(store.connect())
        for seed in (1, 2):
            register(home, NAME, run, seed, solved=18)
        promotion.promote(NAME, "1")
        made = write(file)
        assert made.databases == {"prefect": "postgresql", "mlflow": "postgresql"}
        other = elsewhere(home, monkeypatch)
        with pytest.raises(ValueError, match="is not empty; a backup is restored into an empty"):
            restore(file)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", postgres.named(uri, "restored"))
        monkeypatch.setenv(databases.PREFECT_URL, postgres.named(uri, "prefect2", "asyncpg"))
        with pytest.raises(ValueError, match="there are artifacts at s3://first/rrf/policies"):
            restore(file)
        monkeypatch.setenv("RRF_ARTIFACT_ROOT", "s3://second/rrf")
        restore(file)
        check_sound("1", ["1", "2"], other / "policies")
        assert postgres.query(uri, "prefect2", "SELECT name FROM flow_run") == [("night",)]


def test_the_password_of_a_database_is_not_on_the_command_line_and_not_in_messages(
    monkeypatch, tmp_path
):
    program = tmp_path / "pg_dump"
    program.write_text('#!/bin/sh\necho "$* of $PGPASSWORD" > "$TOLD"\necho gone >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setattr(databases, "_program", lambda name: str(tmp_path / name))
    url = "postgresql+asyncpg://ann:s3cret@db.example.org:5433/prefect?ssl=require"
    with pytest.raises(OSError, match=r"the database at postgresql.*example\.org.*: gone") as told:
        databases.Database("the database", url).dump(tmp_path / "dump")
    assert "s3cret" not in str(told.value)
    words, _, password = (tmp_path / "told").read_text().strip().partition(" of ")
    assert "--dbname=postgresql://ann@db.example.org:5433/prefect?sslmode=require" in words
    assert password == "s3cret"


def test_the_book_of_a_running_policy_server_is_copied_between_two_outcomes(
    home, champion, file, monkeypatch
):
    actor = Actor(champion, "d" * 64, "champion")
    path = home / ".rrf/episodes/policy/1/book.sqlite"
    with contextlib.closing(Book(path)) as book:
        book.begin("arm-1", "open", lambda: actor)
        book.end("arm-1", Outcome(True))
        # A second server of the same rrf has begun to write and has spilled pages to the file.
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA cache_size=1")
            other.execute("BEGIN IMMEDIATE")
            rows = [(f"half-{number}", "x" * 500) for number in range(50)]
            other.executemany(
                "INSERT INTO episodes (id, task, version, digest, role, release, begun) "
                "VALUES (?, ?, '1', 'd', 'champion', '', 0)",
                rows,
            )
            assert path.with_name("book.sqlite-journal").exists()
            dump = databases.Database.dump

            def end_and_dump(self, target):  # the files have been linked by now
                if self.path == path and other.in_transaction:
                    other.execute("ROLLBACK")
                dump(self, target)

            monkeypatch.setattr(databases.Database, "dump", end_and_dump)
            write(file)
    there = elsewhere(home, monkeypatch)
    restore(file)
    with contextlib.closing(Book(there / ".rrf/episodes/policy/1/book.sqlite")) as restored:
        assert [each.id for each in restored.episodes()] == ["arm-1"]
        assert restored.find("arm-1").outcome == Outcome(True)
