"""Whether a version may act: what it stands on may be revoked under another name, and later."""

import asyncio
import collections
import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.mlflow_store import store
from rrf.registry import promotion, releases, taints, versions
from rrf.registry.ledger import Ledger
from rrf.registry.lineage_sources import collect_lineage
from rrf.registry.rules import NotPromotedError
from rrf.registry.served import ServedModel
from rrf.registry.standing import barred
from tests.registry.conftest import (
    NAME,
    copy_of,
    new_run,
    register,
)


def rrf(*words) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def family(tmp_path_factory, empty_store):
    """Champions 'base' 2 and 'coach' 2, and what was trained from and taught by them: version 1,
    the champion, and version 2."""
    with pytest.MonkeyPatch.context() as patch:
        root = copy_of(empty_store.parents[1], tmp_path_factory.mktemp("family"), patch)
        run = new_run(store.connect())
        for name, first in (("base", 11), ("coach", 21)):
            for seed in (first, first + 1):
                version, _ = register(root, name, run, seed, 18)
                promotion.promote(name, version)
        digests = [versions.find(f"{name}/2").checkpoint_digest for name in ("base", "coach")]
        stands_on = dict(zip(("parent_checkpoint", "teacher_checkpoint"), digests, strict=True))
        lineage = collect_lineage("demo").replace(**stands_on)
        for number in (1, 2):
            register(root, NAME, run, number, 18, lineage)
        promotion.promote(NAME, "1")
    return root, run


@pytest.fixture
def home(family, tmp_path, monkeypatch) -> Path:
    from mlflow.tracking._tracking_service import utils

    # MLflow remembers for each run where its artifacts are, and the copies have the same run.
    monkeypatch.setattr(utils, "_artifact_repos_cache", collections.OrderedDict())
    return copy_of(family[0], tmp_path, monkeypatch)


@pytest.fixture
def run_id(family) -> str:
    return family[1]


def test_a_version_that_was_allowed_is_revoked_again_by_what_comes_later(home):
    promotion.rollback("base", "drops the cup")
    with pytest.raises(NotPromotedError, match="'base' version 2, which was rolled back"):
        releases.begin(NAME, "2", shadow=True)
    promotion.promote(NAME, "2", unrevoke="the cup was wet")
    promotion.promote(NAME, "1", unrevoke="the cup was wet")
    releases.begin(NAME, "2", shadow=True)  # what was allowed stays allowed
    releases.stop(NAME, "seen enough")
    promotion.rollback("coach", "hits the table")
    with pytest.raises(NotPromotedError, match="'coach' version 2, which was rolled back"):
        promotion.promote(NAME, "2")
    promotion.promote(NAME, "2", unrevoke="the table was moved")
    promotion.promote("base", "2", unrevoke="it was dry")
    promotion.withdraw("base", "drops the plate")  # the same ancestor, once more
    with pytest.raises(NotPromotedError, match=r"withdrawn \(drops the plate\)"):
        releases.begin(NAME, "1", shadow=True)


def test_a_later_revocation_of_an_own_version_counts_again_too(home, run_id):
    parents = [versions.find(f"{NAME}/{number}").checkpoint_digest for number in (1, 2)]
    promotion.promote(NAME, "2")
    promotion.rollback(NAME, "falls")
    swapped = {"parent_checkpoint": parents[1], "teacher_checkpoint": parents[0]}
    register(home, NAME, run_id, 3, 18, collect_lineage("demo").replace(**swapped))
    promotion.promote(NAME, "3", unrevoke="on ice")
    promotion.promote(NAME, "1")
    promotion.withdraw(NAME, "slips")
    with pytest.raises(NotPromotedError, match=r"from version 1, which was withdrawn \(slips\)"):
        promotion.promote(NAME, "3")


def test_a_champion_whose_ancestor_is_revoked_under_another_name_is_flagged(home):
    assert "warning" not in rrf("models", "list")
    promotion.rollback("coach", "hits the table")
    listed = " ".join(rrf("models", "list").split())
    assert "the champion 'policy' version 1: it stands on 'coach' version 2, which was" in listed
    assert "rolled back (hits the table)" in listed
    assert "rrf models withdraw policy --reason '...'" in listed
    assert "rrf models promote policy 1 --unrevoke --reason '...'" in listed
    assert "It comes from what is revoked: it stands on 'coach'" in rrf("models", "card", NAME)
    assert "warning" not in rrf("models", "list", "base")
    assert ServedModel(NAME).state().revoked == {}  # it goes on: people decide
    assert "@champion" in rrf("models", "promote", NAME, "1", "--unrevoke", "--reason", "soft")
    assert "warning" not in rrf("models", "list")
    assert promotion.promote(NAME, "1", "again").champion == "1"
    actions = [entry.action for entry in promotion.ledger_of(NAME).entries]
    assert actions.count("unrevoke") == 1  # there was nothing more to allow


def test_a_server_of_one_version_hears_what_reaches_it_through_its_lineage(home, monkeypatch):
    served = []
    monkeypatch.setattr("rrf.serving.model.serve_checkpoint", lambda *words: served.append(words))
    rrf("serve", f"{NAME}/2", "--port", "0")
    standing = served[0][-1]

    def says() -> str:
        asyncio.run(standing.look())
        return standing.revoked

    assert says() == ""
    promotion.rollback("base", "drops the cup")
    assert says().startswith("version 2 of 'policy' must not act: it stands on 'base' version 2")
    version, ledger = versions.find(f"{NAME}/2"), promotion.ledger_of(NAME)
    assert says().endswith(barred(store.connect(), ledger, version))  # by MLflow's own client, too
    promotion.promote(NAME, "2", unrevoke="the cup was wet")
    assert says() == ""
    promotion.rollback("coach", "hits the table")
    assert says() == ""  # the champion goes on and is flagged
    promotion.promote(NAME, "1", unrevoke="the table was moved")
    assert "it stands on 'coach' version 2" in says()
    promotion.promote("coach", "2", unrevoke="soft")
    assert says() == ""
    taints.add("demo", "", [], "a loose gripper")
    assert "it stands on dataset demo" in says()


def test_whoever_names_a_version_is_told(home):
    promotion.rollback("base", "drops the cup")
    for words in (("models", "fetch"), ("models", "split")):
        result = CliRunner().invoke(app, [*words, f"{NAME}/2", "--out", str(home / "out")])
        assert "warning: version 2 of 'policy' must not act: it stands on" in result.output


@pytest.mark.parametrize(
    ("lifted", "format_version", "holds"), [("1", 7, 0), ("2", 7, 1), ("1", 6, 1)]
)
def test_approvals_from_before_a_revocation_was_lifted_do_not_hold_after_it(
    lifted, format_version, holds
):
    ledger = Ledger("m")
    for action, version in (("stage", "1"), ("unrevoke", lifted)):
        entry = ledger.next_entry(action=action, version=version, reason="-")
        entry = dataclasses.replace(entry, format_version=format_version)
        ledger = Ledger("m", (*ledger.entries, entry))
    assert ledger.staged == (ledger.entries[0] if holds else None)


def test_an_older_entry_that_allows_a_version_meant_what_was_older_by_the_clock():
    first = Ledger("m").next_entry(action="unrevoke", version="1", reason="-")
    assert first.allows is None
    ledger = Ledger("m", (dataclasses.replace(first, time="2026-05-01T12:00:00+00:00"),))
    other = Ledger("base").next_entry(action="withdraw", version="2", reason="-")
    for time, holds in (("2026-05-01T11:59:59", True), ("2026-05-01T12:00:01", False)):
        revocation = dataclasses.replace(other, time=f"{time}+00:00").sealed()
        assert ledger.allows("1", revocation) == holds
        assert not ledger.allows("2", revocation)
    named = dataclasses.replace(first, allows=[revocation.hash], time="2026-04-01T12:00:00+00:00")
    assert Ledger("m", (named,)).allows("1", revocation)
