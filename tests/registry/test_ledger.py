"""A ledger or an alias that somebody changed is noticed."""

import pytest

from rrf.registry import changes, listing, loading, promotion, repair, versions
from rrf.registry import ledger as ledgers
from rrf.registry.entries import Entry
from rrf.registry.ledger import Ledger
from tests.registry.conftest import (
    NAME,
    aliases,
    promote_three,
)


def test_an_alias_changed_by_hand_is_noticed_by_every_read_and_put_back_by_a_change(
    home, client, add
):
    promote_three(add)
    client.set_registered_model_alias(NAME, "champion", "1")
    message = "@champion of 'policy' is version 1 in MLflow, but version 3 by the promotion ledger"
    reads = [
        lambda: versions.champion(NAME),
        lambda: versions.find(f"{NAME}@champion"),
        lambda: versions.find(f"{NAME}@previous"),
        lambda: loading.fetch(f"{NAME}@champion", home / "out"),
        lambda: promotion.rivals(NAME),
    ]
    for read in reads:
        with pytest.raises(ValueError, match=message):
            read()
    assert listing.problems(NAME)
    assert versions.find(f"{NAME}/1").version == "1"  # a version by its number is what it is
    promotion.rollback(NAME, "drops the cup")
    assert listing.problems(NAME) == []
    assert aliases() == {"champion": "2", "previous": "1"}


def test_a_tampered_ledger_is_noticed_and_stops_promotions(client, add):
    promote_three(add)
    tags = dict(client.get_registered_model(NAME).tags)
    edit, remove = client.set_registered_model_tag, client.delete_registered_model_tag
    second = promotion.ledger_of(NAME).entries[1]

    damages = [
        (lambda: edit(NAME, "ledger.000002", edited(second)), "entry 2 was edited"),
        (lambda: edit(NAME, "ledger.000002", "[" * 100_000), "entry 2 is unreadable"),
        (lambda: edit(NAME, "ledger.000002", "{}"), "entry 2 is unreadable"),
        (lambda: remove(NAME, "ledger.000001"), "entry 1 was removed"),
        (lambda: remove(NAME, "ledger.000007"), "entries after 6 were cut off"),
    ]
    for damage, message in damages:
        damage()
        with pytest.raises(ValueError, match=message):
            promotion.ledger_of(NAME)
        with pytest.raises(ValueError, match=message):
            promotion.rollback(NAME, "drops the cup")
        for key, value in tags.items():
            edit(NAME, key, value)
    assert len(promotion.ledger_of(NAME).entries) == 7


def test_an_entry_that_comes_while_the_ledger_is_read_is_no_damage(client, monkeypatch):
    client.create_registered_model(NAME)
    read_tags, waiting = client.get_registered_model, []

    def read_slowly(name):
        """The model; meanwhile, another process writes an entry, and sees it."""
        model = read_tags(name)
        if waiting:
            changes.append(client, waiting.pop(), action="gate", reason="meanwhile")
            assert ledgers.read(client, NAME).end == ledgers.remembered(NAME)
        return model

    monkeypatch.setattr(client, "get_registered_model", read_slowly)
    for number in range(2):
        waiting.append(ledgers.read(client, NAME))
        assert len(changes.agreed(client, NAME).entries) == 2 * number
        waiting.append(ledgers.read(client, NAME))
        assert repair.examine(client, NAME).findings == []


def cut_off_the_last(client) -> None:
    """Remove the last entry and make the one before it the head, and the champion by its alias."""
    entries = promotion.ledger_of(NAME).entries
    client.delete_registered_model_tag(NAME, f"ledger.{len(entries):06d}")
    client.set_registered_model_tag(NAME, "ledger.head", entries[-2].hash)
    for alias, version in changes.expected_aliases(Ledger(NAME, entries[:-1])).items():
        if version:
            client.set_registered_model_alias(NAME, alias, version)


@pytest.mark.slow
def test_the_last_entry_removed_with_its_head_and_aliases_is_noticed_by_who_has_seen_it(
    client, add
):
    promote_three(add)
    cut_off_the_last(client)
    with pytest.raises(ValueError, match="an entry that this workspace has seen"):
        versions.champion(NAME)
    assert "has seen" in listing.problems(NAME)[0]


def edited(entry: Entry) -> str:
    return entry.text().replace("register", "evaluate")
