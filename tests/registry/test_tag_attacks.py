"""Tags of MLflow, which anybody can edit, decide nothing; what stands in the way of a change."""

import pytest

from rrf.registry import changes, listing, loading, promotion, registration, repair, versions
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import NAME, decisions, promote_three, register, write_gate


def copy_tags(client, source: str, target: str, *prefixes: str) -> None:
    for key, value in versions.find(f"{NAME}/{source}").tags.items():
        if key.startswith(prefixes):
            client.set_model_version_tag(NAME, target, key, value)


def mended() -> list[str]:
    repair.repair(NAME, "somebody edited the tags")
    return listing.problems(NAME)


@pytest.mark.slow
def test_an_old_champion_does_not_vanish_from_the_rivals_by_its_tags(home, client, add):
    write_gate(home / "configs/gates/g.yaml", overall_lower_bound=0.0, champion_margin=0.45)
    for seed, solved in enumerate((20, 16, 13), start=1):
        add(seed, solved=solved)
    promotion.promote(NAME, "1")
    promotion.promote(NAME, "2")
    client.set_model_version_tag(NAME, "1", "evaluation.success", "0.0")
    assert {role: v.version for role, v in promotion.rivals(NAME).items()} == {
        "champion": "2",
        "best": "1",
    }
    with pytest.raises(promotion.NotPromotedError, match="best champion"):
        promotion.promote(NAME, "3")
    (problem,) = listing.problems(NAME)
    assert problem.startswith("the success of 'policy' version 1 is 0.0 in MLflow, but 1.000000 by")
    assert mended() == []
    assert versions.find(f"{NAME}/1").tags["evaluation.success"] == "1.000000"


@pytest.mark.slow
def test_attempts_are_counted_by_the_ledger_also_those_of_versions_that_were_deleted(client, add):
    for seed, solved in enumerate((4, 4, 4), start=1):
        add(seed, solved=solved)
    for version in ("1", "2"):
        for key in versions.find(f"{NAME}/{version}").tags:
            client.delete_model_version_tag(NAME, version, key)
    client.delete_model_version(NAME, "2")
    _, report = add(4, solved=18)
    assert promotion.attempt_of(NAME, report.checkpoint_digest) == 4


@pytest.mark.parametrize(
    "prefixes",
    [
        ("checkpoint_digest", "evaluation"),
        pytest.param(("checkpoint_digest",), marks=pytest.mark.slow),
    ],
)
def test_bad_weights_with_the_tags_of_good_ones_are_not_promoted(client, add, prefixes):
    add(1, solved=20)
    add(2, solved=2)
    promotion.promote(NAME, "1")
    copy_tags(client, "1", "2", *prefixes)
    with pytest.raises(ValueError, match=r"version 2 was registered as checkpoint .* edited"):
        promotion.promote(NAME, "2")
    assert mended() == []
    with pytest.raises(promotion.NotPromotedError, match="2/20 solved"):
        promotion.promote(NAME, "2")


def test_a_checkpoint_replaced_in_the_store_does_not_become_champion(home, client, add):
    version, _ = add(1)
    uri = client.get_model_version_download_uri(NAME, version)
    weights = next((home / ".rrf").rglob("artifacts/checkpoint/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(ValueError, match=r"corrupt|replaced|changed"):
        promotion.promote(NAME, version)
    assert [e.action for e in decisions()] == ["gate"], uri


def test_a_cleaned_lineage_is_not_believed(client, add):
    version, _ = add(1)
    client.set_model_version_tag(NAME, version, "lineage.git_dirty", "no, really not")
    with pytest.raises(ValueError, match="the lineage of 'policy' version 1 is not the one it was"):
        promotion.promote(NAME, version)


def test_a_checkpoint_is_not_taken_for_a_version_whose_tag_names_it(home, client, run_id, add):
    add(1)
    digest = versions.find(f"{NAME}/1").checkpoint_digest
    add(2)
    client.set_model_version_tag(NAME, "2", "checkpoint_digest", "0" * 64)
    client.set_model_version_tag(
        NAME, "1", "checkpoint_digest", versions.find(f"{NAME}/2").tags["checkpoint_digest"]
    )
    assert register(home, NAME, run_id, 2, 18)[0] == "2"
    assert changes.agreed(client, NAME).checkpoint_of("1") == digest


def test_a_ledger_of_another_model_is_noticed(client, add):
    promote_three(add)
    client.create_registered_model("copy")
    for key, value in client.get_registered_model(NAME).tags.items():
        client.set_registered_model_tag("copy", key, value)
    with pytest.raises(ValueError, match="entry 1 was written for model 'policy'"):
        promotion.ledger_of("copy")


@pytest.mark.slow
def test_a_deleted_champion_is_named_by_every_change_and_a_repair_falls_back(
    home, client, run_id, add
):
    promote_three(add)
    client.delete_model_version(NAME, "3")
    commands = (
        lambda: promotion.promote(NAME, "1"),
        lambda: promotion.rollback(NAME, "drops the cup"),
        lambda: register(home, NAME, run_id, 4, 18),
        lambda: promotion.withdraw(NAME, "drops the cup"),
    )
    for command in commands:
        with pytest.raises(ValueError, match=r"version 3 of 'policy', a champion .* was deleted"):
            command()
    with pytest.raises(ValueError, match="rrf models repair policy"):
        versions.champion(NAME)
    damage = repair.repair(NAME, "somebody cleaned up")
    assert (damage.deleted, damage.champion) == (["3"], "2")
    assert changes.agreed(client, NAME).champions == ["1", "2"]
    assert listing.problems(NAME) == []
    assert loading.fetch(f"{NAME}@champion", home / "out").version == "2"
    assert promotion.rollback(NAME, "drops the cup").champion == "1"
    assert decisions()[-2].deleted == ["3"]


@pytest.mark.slow
def test_a_rollback_over_a_deleted_champion_goes_to_the_one_before(client, add):
    promote_three(add)
    client.delete_model_version(NAME, "1")
    promotion.rollback(NAME, "drops the cup")  # to version 2; version 1 would come next
    with pytest.raises(ValueError, match="version 1 of 'policy', a champion"):
        promotion.rollback(NAME, "so does this one")
    repair.repair(NAME, "somebody cleaned up")
    assert changes.agreed(client, NAME).champions == ["2"]


def test_a_withdrawn_champion_is_refused_with_the_reason(home, client, add):
    add(1)
    add(2)
    with pytest.raises(ValueError, match="has no champion to withdraw"):
        promotion.withdraw(NAME, "x")
    promotion.promote(NAME, "1")
    entry = promotion.withdraw(NAME, "drops the cup")
    assert (entry.version, entry.champion) == ("1", None)
    assert promotion.withdraw(NAME, "drops the cup") == entry
    with pytest.raises(
        ValueError, match=r"has no champion: version 1 was withdrawn \(drops the cup"
    ):
        loading.fetch(f"{NAME}@champion", home / "out")
    with pytest.raises(promotion.NotPromotedError, match="it was withdrawn"):
        promotion.promote(NAME, "1")
    with pytest.raises(ValueError, match="no previous champion"):
        promotion.rollback(NAME, "x")
    assert "Withdrawn: " in versions.find(f"{NAME}/1").description
    assert promotion.promote(NAME, "2").previous is None
    assert promotion.promote(NAME, "1", unrevoke="the cup was wet").champion == "1"
    assert listing.problems(NAME) == []


def test_names_of_changes_are_reserved():
    with pytest.raises(ValueError, match="is reserved for changes of another model"):
        registration.check_task("policy.change-000002", collect_lineage())


def forged(client, **facts) -> dict[str, str]:
    ledger = promotion.ledger_of(NAME)
    entry = ledger.next_entry(action="promote", version="1", champion="1", reason="x")
    text = entry.text()
    for old, new in facts.items():
        text = text.replace(old, new)
    return {changes.CLAIM: NAME, "rrf.entry": text}


@pytest.mark.parametrize(
    "what",
    [
        "a model",
        "edited",
        *(
            pytest.param(what, marks=pytest.mark.slow)
            for what in ("rubbish", "nested", "of another model")
        ),
    ],
)
def test_a_model_in_the_way_of_a_change_is_named_and_moved_aside(client, add, what):
    version, _ = add(1)
    claim = f"{NAME}.change-{len(promotion.ledger_of(NAME).entries) + 1:06d}"
    tags = {
        "a model": {},
        "rubbish": {changes.CLAIM: NAME, "rrf.entry": "{"},
        "nested": {changes.CLAIM: NAME, "rrf.entry": "[" * 4000},
        "edited": forged(client, promote="rollback"),
        "of another model": forged(client, policy="other"),
    }[what]
    client.create_registered_model(claim, tags=tags)
    with pytest.raises(ValueError, match=f"the registered model '{claim}' stands where the next"):
        promotion.promote(NAME, version)
    assert "stands where the next change" in repair.examine(client, NAME).findings[0]
    assert mended() == []
    assert client.get_registered_model(f"{claim}.moved-aside").tags == tags
    assert promotion.promote(NAME, version).champion == version
