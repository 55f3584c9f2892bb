"""Promotion and rollback on a real SQLite MLflow store."""

import dataclasses
import json

import pytest

from rrf.lineage import Lineage
from rrf.registry import promotion, registration, taints, versions
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import (
    NAME,
    add_dataset,
    aliases,
    decisions,
    judge,
    make_checkpoint,
    promote_three,
    write_gate,
    write_json,
)


def test_a_passing_version_becomes_champion_and_gets_a_ledger_entry(add):
    version, report = add(1)
    verdict = judge(report)
    entry = promotion.promote(NAME, version)
    assert aliases() == {"champion": "1"}
    assert (entry.index, entry.action, entry.champion, entry.previous) == (3, "promote", "1", None)
    assert (entry.verdict_digest, entry.protocol_hash) == (verdict.digest, report.protocol_hash)
    found = versions.champion(NAME)
    assert found is not None
    assert json.loads(found.tags["gate.verdict"])["digest"] == verdict.digest
    actions = [e.action for e in promotion.ledger_of(NAME).entries]
    assert actions == ["gate", "register", "promote"]


def test_promoting_the_champion_again_changes_nothing(add):
    version, _ = add(1)
    first = promotion.promote(NAME, version)
    assert promotion.promote(NAME, version) == first
    assert len(decisions()) == 2


def test_a_failing_verdict_is_refused_with_its_reasons_which_stay_on_the_version(add):
    version, _ = add(1, solved=4)
    with pytest.raises(ValueError, match=r"says fail:\n  fail: overall: 4/20 solved"):
        promotion.promote(NAME, version)
    found = versions.find(f"{NAME}@candidate")
    assert found.tags["gate.outcome"] == "fail"
    assert "4/20 solved" in found.tags["gate.verdict"]
    assert [e.action for e in decisions()] == ["gate"]


def test_a_verdict_that_holds_is_refused_with_what_to_type(home, add):
    write_gate(home / "configs/gates/g.yaml", looks=[20, 50])
    version, _ = add(1, solved=12)
    with pytest.raises(ValueError, match=r"says hold:\n  hold: overall: 12/20") as error:
        promotion.promote(NAME, version)
    words = f"rrf eval {NAME}/{version} --gate configs/gates/g.yaml --register {NAME}"
    said = f"\n  30 more episodes per task may tell: {words} --extra-episodes 30"
    assert str(error.value).endswith(said)


def test_a_candidate_is_compared_with_the_champion_of_today(add):
    for seed in (1, 2):
        add(seed, solved=20)
    weak, _ = add(3, solved=12)
    promotion.promote(NAME, "1")
    with pytest.raises(promotion.NotPromotedError, match="champion: 0 won, 8 lost of 20 pairs"):
        promotion.promote(NAME, weak)
    promotion.promote(NAME, "2")
    verdict = json.loads(versions.find(f"{NAME}/2").tags["gate.verdict"])
    assert (verdict["champion_version"], verdict["best_version"]) == ("1", None)
    assert aliases() == {"champion": "2", "previous": "1", "candidate": "3"}


def without(lineage: Lineage, key: str) -> Lineage:
    """The lineage of one dataset without one of the facts that a promotion needs."""
    [dataset] = lineage.datasets
    return {
        "dataset_md5": lineage.replace(datasets=(dataclasses.replace(dataset, md5=None),)),
        "git_revision": lineage.replace(git_revision=None),
        "validation": lineage.replace(datasets=(dataclasses.replace(dataset, validation=None),)),
    }[key]


@pytest.mark.parametrize("key", ["dataset_md5", "git_revision", "validation"])
def test_incomplete_lineage_is_refused(home, add, key):
    version, _ = add(1, lineage=without(collect_lineage("demo"), key))
    with pytest.raises(ValueError, match=f"its lineage lacks {key}"):
        promotion.promote(NAME, version)
    add(1)
    promotion.promote(NAME, version)


def test_a_dataset_that_failed_its_validation_promotes_nothing(home, add):
    write_json(home / "datasets/reports/demo/validation.json", {"passed": False})
    version, _ = add(1)
    with pytest.raises(ValueError, match="validation of dataset demo is 'failed'"):
        promotion.promote(NAME, version)


def test_one_bad_dataset_of_a_mixture_promotes_nothing(home, add):
    add_dataset(home, "lab", "77.dir", passed=False)
    version, _ = add(1, lineage=collect_lineage("demo", "lab"))
    with pytest.raises(ValueError, match="of dataset demo, lab is 'passed, failed', not 'passed'"):
        promotion.promote(NAME, version)
    version, _ = add(2, lineage=collect_lineage("demo", "unknown"))
    with pytest.raises(ValueError, match="its lineage lacks dataset_md5, validation"):
        promotion.promote(NAME, version)


def test_a_version_that_was_never_evaluated_is_not_promoted(home, run_id, add):
    add(2)
    checkpoint = make_checkpoint(home / "checkpoints/1", 1)
    version = registration.register(checkpoint, NAME, run_id, collect_lineage("demo"))
    with pytest.raises(
        ValueError, match=r"has no evaluation under protocol 'p' .* rrf eval policy/2 --gate "
    ):
        promotion.promote(NAME, version)


def test_rollbacks_walk_back_through_the_champions(add):
    promote_three(add)
    entry = promotion.rollback(NAME, "drops the cup")
    assert (entry.version, entry.champion, entry.previous, entry.reason) == (
        "3",
        "2",
        "1",
        "drops the cup",
    )
    assert aliases() == {"champion": "2", "previous": "1"}
    promotion.rollback(NAME, "so does this one")
    assert aliases() == {"champion": "1"}
    with pytest.raises(ValueError, match="no previous champion"):
        promotion.rollback(NAME, "and this")
    actions = [e.action for e in decisions()]
    assert actions == ["gate"] + ["promote"] * 3 + ["rollback"] * 2


@pytest.mark.slow
def test_no_rollback_returns_to_a_version_that_was_rolled_back_itself(add):
    for seed in (1, 2):
        add(seed)
    for version in ("1", "2", "1"):
        promotion.promote(NAME, version)
    entry = promotion.rollback(NAME, "drops the cup")
    assert (entry.version, entry.champion, entry.previous) == ("1", "2", None)
    assert aliases() == {"champion": "2"}
    with pytest.raises(ValueError, match="has no previous champion to roll back to"):
        promotion.rollback(NAME, "drops the plate")
    promotion.promote(NAME, "1", unrevoke="the cup was wet")
    assert promotion.rollback(NAME, "drops the plate").champion == "2"


def test_no_rollback_returns_to_a_version_that_stands_on_tainted_data(add):
    for version in (1, 2):
        add(version)
        promotion.promote(NAME, str(version))
    taints.add("demo", "", [], "a loose gripper")
    with pytest.raises(ValueError, match=r"not rolled back to version 1: it stands on .* withdraw"):
        promotion.rollback(NAME, "drops the cup")
    assert aliases()["champion"] == "2"
    promotion.withdraw(NAME, "drops the cup")


def test_a_rollback_from_a_named_version_happens_once(add):
    promote_three(add)
    first = promotion.rollback(NAME, "drops the cup", version="3")
    assert promotion.rollback(NAME, "drops the cup", version="3") == first
    assert aliases() == {"champion": "2", "previous": "1"}
    with pytest.raises(ValueError, match="champion of 'policy' is version 2, not 1"):
        promotion.rollback(NAME, "x", version="1")
    with pytest.raises(ValueError, match="needs a reason"):
        promotion.rollback(NAME, " ")
