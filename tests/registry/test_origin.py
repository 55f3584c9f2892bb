"""A fetched policy knows which version it is; a withdrawn one is refused if that can be known."""

import asyncio
import os
import shutil

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.lineage import Lineage
from rrf.registry import loading, origin, promotion, registration, versions
from rrf.runners.checkpoints.deployable import deployable_digest
from tests.registry.conftest import NAME, make_checkpoint


@pytest.fixture
def fetched(home, add, monkeypatch):
    """The champion, fetched to a folder outside of the workspace."""
    monkeypatch.chdir(home)
    add(1)
    promotion.promote(NAME, "1")
    folder = home / "robot/policy"
    loading.fetch(NAME, folder)
    return folder


def said(folder, allow: bool = False) -> list[str]:
    lines: list[str] = []
    origin.check(folder, allow, lines.append)
    return lines


def test_a_fetched_policy_is_the_one_that_was_registered_and_says_which_it_is(home, fetched):
    found = origin.read(fetched)
    assert found == origin.Origin(NAME, "1", f"sqlite:///{home}/.rrf/mlflow.db")
    assert deployable_digest(fetched) == deployable_digest(home / "checkpoints/1")
    run_id = versions.find(f"{NAME}/1").run_id
    again = registration.register(fetched, NAME, run_id, Lineage())
    assert again == "1"  # what the registry put beside it is no part of it
    assert said(fetched) == []


def test_a_withdrawn_version_is_refused_with_the_reason(fetched):
    promotion.withdraw(NAME, "it hit the table")
    with pytest.raises(origin.RevokedError, match=r"version 1 .* withdrawn .*: it hit the table"):
        said(fetched)
    [line] = said(fetched, allow=True)
    assert line.endswith("it hit the table; it is used all the same")


def test_a_served_copy_hears_of_the_withdrawal_of_its_version(fetched, monkeypatch):
    served = []
    monkeypatch.setattr("rrf.serving.model.serve_checkpoint", lambda *words: served.append(words))
    done = CliRunner().invoke(app, ["serve", str(fetched), "--port", "0"])
    assert done.exit_code == 0, done.output
    standing = served[0][-1]
    assert (standing.name, standing.version) == (NAME, "1")
    asyncio.run(standing.look())
    assert standing.revoked == ""
    promotion.withdraw(NAME, "it hit the table")
    asyncio.run(standing.look())
    assert standing.revoked.endswith("it hit the table")


def test_a_note_that_names_a_place_is_damaged(fetched):
    note = fetched / "registry/origin.json"
    note.write_text(note.read_text().replace(f'"{NAME}"', '"../elsewhere"'))
    with pytest.raises(ValueError, match=r"'\.\./elsewhere' is no name of a model"):
        origin.read(fetched)


def test_the_recorded_store_is_asked_from_another_place(fetched, tmp_path_factory, monkeypatch):
    promotion.withdraw(NAME, "it hit the table")
    monkeypatch.setenv("RRF_HOME", str(tmp_path_factory.mktemp("elsewhere")))
    with pytest.raises(origin.RevokedError, match="it hit the table"):
        said(fetched)
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_where_nobody_can_be_asked_a_line_says_so(home, fetched, tmp_path_factory, monkeypatch):
    promotion.withdraw(NAME, "it hit the table")
    other = tmp_path_factory.mktemp("other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/none.db")
    [line] = said(fetched)
    assert "nobody says whether policy version 1 is still allowed: there is no store" in line
    assert not list(other.iterdir())  # none was made by asking
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert "nobody says" in said(fetched)[0]


def test_another_policy_of_the_same_name_says_nothing_about_this_one(home, fetched):
    promotion.withdraw(NAME, "it hit the table")
    other = make_checkpoint(home / "checkpoints/8", 8)
    shutil.copytree(fetched / "registry", other / "registry")
    origin.write(other, versions.find(f"{NAME}/1"), {})
    assert "has another policy as policy version 1" in said(other)[0]


def test_a_damaged_note_is_told(fetched):
    (fetched / "registry/origin.json").write_text("[]")
    with pytest.raises(ValueError, match=r"origin\.json is damaged .* fetch the policy again"):
        origin.read(fetched)


def test_a_checkpoint_that_was_never_fetched_is_nobodys(home):
    assert said(make_checkpoint(home / "checkpoints/1")) == []
