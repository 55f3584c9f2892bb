"""Signed changes and approvals through a store; `tests/identity/test_trust.py` has the rules."""

import dataclasses
import datetime
import json

import pytest

from rrf.identity import keys, trust
from rrf.identity.keys import SigningError
from rrf.identity.trust import ModelTrustCfg, TrustCfg
from rrf.registry import approvals, changes, promotion, repair, versions
from rrf.registry import ledger as ledgers
from rrf.registry.approvals import AwaitingApprovalError
from rrf.registry.entries import Approval
from rrf.registry.ledger import DamagedError
from tests.registry.conftest import NAME, aliases


def demand(cfg: TrustCfg, **rules) -> None:
    trust.save(cfg.replace(models={"pol*": ModelTrustCfg(**rules)}))


def entries():
    return promotion.ledger_of(NAME).entries


def waiting(version: str = "1") -> AwaitingApprovalError:
    with pytest.raises(AwaitingApprovalError) as caught:
        promotion.promote(NAME, version)
    return caught.value


def approve(monkeypatch, name: str, version: str = "1", reason: str = "looked at the videos"):
    with monkeypatch.context() as patch:
        patch.setenv(keys.NAME_VARIABLE, name)
        return promotion.approve(approvals.sign(promotion.ledger_of(NAME), version, reason))


def test_changes_are_signed_or_not_written(home, people, add, monkeypatch, tmp_path):
    demand(people, allowed={"promote": ["bob"]})
    add(1)
    before = entries()
    assert {entry.actor for entry in before} == {"alice"}
    with pytest.raises(ValueError, match=r"its next entry is signed by alice, who may not promote"):
        promotion.promote(NAME, "1")
    keys.new("mallory")
    monkeypatch.setenv(keys.NAME_VARIABLE, "mallory")
    with pytest.raises(
        ValueError, match="'policy' is not changed: its next entry is signed by a k"
    ):
        promotion.promote(NAME, "1")
    with monkeypatch.context() as patch:
        patch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "none"))
        with pytest.raises(SigningError, match=r"there is no key 'mallory' in .*only none; make"):
            promotion.promote(NAME, "1")
    assert entries() == before
    assert aliases() == {"candidate": "1"}
    monkeypatch.setenv(keys.NAME_VARIABLE, "bob")
    promotion.promote(NAME, "1")
    assert (entries()[-1].actor, aliases()) == ("bob", {"champion": "1"})


def test_a_consistent_lie_without_a_key_is_refused_and_set_aside(home, people, add, client):
    demand(people)
    add(1)
    promotion.promote(NAME, "1")
    add(2)
    count = len(entries())
    lie = promotion.ledger_of(NAME).next_entry(
        action="promote", version="2", champion="2", previous="1", reason="trust me"
    )
    client.set_registered_model_tag(NAME, ledgers.key_of(lie.index), lie.text())
    client.set_registered_model_tag(NAME, ledgers.HEAD, lie.hash)
    client.set_registered_model_alias(NAME, "champion", "2")
    for read in (lambda: promotion.ledger_of(NAME), lambda: changes.agreed(client, NAME)):
        with pytest.raises(DamagedError, match=rf"entry {count + 1} \(promote\) is not signed"):
            read()
    findings = repair.repair(NAME, "an entry that nobody signed").findings
    assert "is not signed" in findings[0]
    last = entries()[-1]
    assert (last.action, last.champion, last.actor) == ("repair", "1", "alice")
    assert aliases()["champion"] == "1"


def test_a_claim_that_nobody_signed_is_not_written_for_its_author(home, people, add, client):
    add(1)
    client.set_registered_model_alias(NAME, "staging", "1")  # of people's own
    demand(people, believed_until={NAME: entries()[-1].hash})
    lie = promotion.ledger_of(NAME).next_entry(
        action="promote", version="1", champion="1", reason="-"
    )
    claim = f"{NAME}.change-{lie.index:06d}"
    for name in (claim, f"{claim}.moved-aside"):
        client.create_registered_model(name, tags={changes.CLAIM: NAME, "rrf.entry": lie.text()})
    before = entries()
    with pytest.raises(
        ValueError, match=f"'{claim}' stands .*, and holds an entry that is not sig"
    ):
        promotion.promote(NAME, "1")
    assert entries() == before
    assert "holds an entry that is not signed" in repair.repair(NAME, "a lie").findings[0]
    assert repair.repair(NAME, "a lie").findings == []
    assert promotion.promote(NAME, "1").actor == "alice"
    assert aliases() == {"champion": "1", "staging": "1"}


def test_who_may_not_repair_changes_nothing_by_trying(home, people, add, client, monkeypatch):
    add(1)
    demand(people, believed_until={NAME: entries()[-1].hash}, allowed={"repair": ["bob"]})
    key = ledgers.key_of(len(entries()) + 1)
    client.set_registered_model_tag(NAME, key, "not json")
    for number in range(4):
        client.set_registered_model_tag(
            NAME, f"{key}.{number}", json.dumps({"hash": f"{number:064}"})
        )
    tags, seen = client.get_registered_model(NAME).tags, ledgers.remembered(NAME)
    with pytest.raises(ValueError, match="alice, who may not repair here"):
        repair.repair(NAME, "I try")
    assert (client.get_registered_model(NAME).tags, ledgers.remembered(NAME)) == (tags, seen)
    assert repair._MOST_LOST * len('"", ' + 64 * "0") < changes._LONGEST_TAG - 2000
    monkeypatch.setattr(repair, "_MOST_LOST", 2)
    monkeypatch.setenv(keys.NAME_VARIABLE, "bob")
    repair.repair(NAME, "more hashes than an entry has room for")
    assert repair.examine(client, NAME).findings == []
    assert [len(e.lost or ()) for e in entries() if e.action == "repair"] == [2, 2]


def test_a_promotion_waits_for_others_and_goes_through_when_enough_approve(
    home, people, add, client, monkeypatch
):  # fmt: skip
    demand(people, approvals=2)
    add(1)
    error = waiting()
    assert error.missing == 2
    assert "by others, until" in str(error)
    assert "rrf models approve policy 1 --reason" in str(error)
    assert aliases() == {"candidate": "1", "staging": "1"}
    client.delete_registered_model_alias(NAME, "staging")
    with pytest.raises(ValueError, match="@staging of 'policy' is no version in MLflow, but versi"):
        versions.find(f"{NAME}@staging")
    waiting()  # asked again, nothing is written
    assert versions.find(f"{NAME}@staging").version == "1"
    assert [entry.action for entry in entries()].count("stage") == 1
    with pytest.raises(ValueError, match=r"by alice, who asked for it; .*: rrf keys list; RRF_KEY"):
        approve(monkeypatch, "alice")
    first = approve(monkeypatch, "bob")
    assert approve(monkeypatch, "bob", reason="and again") == first
    assert waiting().missing == 1
    approve(monkeypatch, "carol")
    promotion.promote(NAME, "1")
    assert aliases() == {"champion": "1"}
    given = [(e.actor, e.reason) for e in entries() if e.action == "approve"]
    assert given == [("bob", "looked at the videos"), ("carol", "looked at the videos")]


@pytest.mark.slow
def test_approvals_are_of_a_request_of_a_verdict_with_a_reason(home, people, add, monkeypatch):
    demand(people, approvals=1)
    add(1)
    with pytest.raises(
        ValueError, match="version 1 waits for no approval, no version does; to ask"
    ):
        approve(monkeypatch, "bob")
    waiting()
    with pytest.raises(ValueError, match="version 2 waits for no approval, version 1 does"):
        approve(monkeypatch, "bob", "2")
    with pytest.raises(ValueError, match="an approval needs a reason"):
        approve(monkeypatch, "bob", reason=" ")
    with monkeypatch.context() as patch:
        patch.setenv(keys.NAME_VARIABLE, "carol")
        late = approvals.sign(promotion.ledger_of(NAME), "1", "late")
    approve(monkeypatch, "bob")
    promotion.promote(NAME, "1")
    add(2, 19)
    assert waiting("2").missing == 1  # in comparison with a champion now
    with pytest.raises(ValueError, match="version 1 waits for no approval, version 2 does"):
        promotion.approve(late)


def test_a_request_that_is_over_is_made_again(home, people, add, monkeypatch):
    demand(people, approvals=1, approval_hours=2.0)
    add(1)
    stage = waiting().stage
    late = datetime.datetime.fromisoformat(stage.time) + datetime.timedelta(hours=3)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return late

    monkeypatch.setattr(datetime, "datetime", Later)
    with pytest.raises(ValueError, match=r"version 1 expired .*; ask again: rrf models promote"):
        approve(monkeypatch, "bob")
    assert waiting().stage.hash != stage.hash
    approve(monkeypatch, "bob")
    assert promotion.promote(NAME, "1").champion == "1"


def test_an_approval_is_written_once_whoever_brings_it(home, people, add, monkeypatch):
    demand(people, approvals=1, allowed={"approve": ["alice"]})
    add(1)
    waiting()
    with monkeypatch.context() as patch:
        patch.setenv(keys.NAME_VARIABLE, "bob")
        approval = approvals.sign(promotion.ledger_of(NAME), "1", "good")
    forged = dataclasses.replace(approval, reason="very good")
    with pytest.raises(ValueError, match="is an approval that bob's key did not sign"):
        promotion.approve(forged)
    entry = promotion.approve(approval)
    assert promotion.approve(approval) == entry
    assert (entry.actor, entry.reason) == ("alice", "good")
    assert Approval(**entry.approval or {}).is_signed
    assert promotion.promote(NAME, "1").champion == "1"
