"""Compare-and-swap for the registry: a change is written once, whoever else changes the model.

MLflow overwrites tags and aliases without comparing. What all of its stores (SQLite, PostgreSQL, a
server in front of them) do exactly once is to create a registered model: its name is a primary key.
So a change of a ledger begins with a claim, a registered model named after the entry's number that
holds the entry. Only one process can create it:

    create the claim -> write the entry -> set the aliases -> delete the claim

Whoever finds a claim finishes it in the same order, so a killed process blocks nobody. Somebody who
comes late and creates the claim anew finds that the entry exists, and deletes the claim. This is
safe because a finisher reads the claim before the ledger: when a stale claim is there, so is the
entry that made it stale.

While a claim exists, aliases may be behind the ledger. Without one, a difference between aliases
and ledger means that somebody changed one of them behind our back (`rrf.tracking.standing`).
"""

from typing import TYPE_CHECKING

from rrf.tracking import ledger
from rrf.tracking.ledger import Entry

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

CHAMPION, CANDIDATE, PREVIOUS = "champion", "candidate", "previous"
CLAIM = "rrf.change-of"
"""The tag that tells a claim from a model; its value is the model's name."""
_ENTRY = "rrf.entry"
_LONGEST_TAG = 5000  # of a registered model on PostgreSQL
ROUNDS = 20
"""How often a change is tried that others are faster with, before it is given up."""


def append(client: "MlflowClient", name: str, entry: Entry) -> bool:
    """Write the entry after those it was made for, and set the aliases.

    Returns:
        Whether it was written; False if another process has written another one meanwhile.

    Raises:
        ValueError: If the entry is too large for MLflow.
    """
    if len(entry.text()) > _LONGEST_TAG:
        raise ValueError(
            f"the change of '{name}' needs {len(entry.text())} characters, but MLflow's tags hold "
            f"{_LONGEST_TAG}; give a shorter reason, or a gate with fewer tasks"
        )
    _claim(client, name, entry)
    finish(client, name, entry.index)
    written = client.get_registered_model(name).tags.get(ledger.key_of(entry.index))
    return written == entry.text()


def finish(client: "MlflowClient", name: str, index: int = 0) -> list[Entry]:
    """Finish the change that another process may have left half done; returns the ledger.

    Args:
        client: A client of the store.
        name: The registered model.
        index: The number of an entry that this process has claimed, perhaps too late.

    Raises:
        DamagedError: If the ledger is damaged.
    """
    for _ in range(ROUNDS):
        entries = ledger.parse(name, client.get_registered_model(name).tags)
        claims = [
            claim
            for number in {len(entries), len(entries) + 1, index}
            if (claim := _find(client, name, number))
        ]
        if not claims:
            return entries
        for claim in claims:
            _finish(client, name, claim)
    raise busy(name)


def is_under_way(client: "MlflowClient", name: str, entries: list[Entry]) -> bool:
    """Whether the last entry's aliases may not be set yet."""
    return _find(client, name, len(entries)) is not None


def set_aliases(client: "MlflowClient", name: str, candidate: str | None = None) -> None:
    """Set the aliases to what the ledger says, and @candidate to a version, if one is given."""
    while True:
        model = client.get_registered_model(name)
        entries = ledger.parse(name, model.tags)
        _set_aliases(client, model, expected_aliases(entries), candidate)
        # Another process may have changed both meanwhile, and we may have undone its aliases.
        if ledger.read(client, name) == entries:
            return


def expected_aliases(entries: list[Entry]) -> dict[str, str | None]:
    """The versions that the ledger makes @champion and @previous; None for none."""
    return {PREVIOUS: ledger.previous_of(entries), CHAMPION: ledger.champion_of(entries)}


def differing_aliases(
    model: "RegisteredModel", entries: list[Entry]
) -> dict[str, tuple[str | None, str | None]]:
    """@champion and @previous where MLflow and the ledger differ -> the version by each of them."""
    current = aliases_in(model)
    expected = expected_aliases(entries).items()
    found = {alias: (current.get(alias), version) for alias, version in expected}
    return {alias: both for alias, both in found.items() if both[0] != both[1]}


def aliases_in(model: "RegisteredModel") -> dict[str, str]:
    """The aliases in MLflow -> their version, which MLflow's stores give as number or as text."""
    return {alias: str(version) for alias, version in model.aliases.items()}


def busy(name: str) -> OSError:
    """The error for a change that came second every time."""
    return OSError(f"'{name}' is being changed by other processes all the time; try again later")


def _set_aliases(
    client: "MlflowClient",
    model: "RegisteredModel",
    expected: dict[str, str | None],
    candidate: str | None,
) -> None:
    current = aliases_in(model)
    if candidate is None or candidate == expected[CHAMPION]:
        candidate = current.get(CANDIDATE)
    is_champion = candidate == expected[CHAMPION]
    wanted = {**expected, CANDIDATE: None if is_champion else candidate}
    for alias, version in wanted.items():
        if version is None and alias in current:
            client.delete_registered_model_alias(model.name, alias)
        elif version is not None and current.get(alias) != version:
            client.set_registered_model_alias(model.name, alias, version)


def _claim(client: "MlflowClient", name: str, entry: Entry) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(
            _claim_name(name, entry.index),
            tags={CLAIM: name, _ENTRY: entry.text()},
            description=f"A change of `{name}` that is being written; it disappears by itself.",
        )
    except MlflowException as error:
        # Another process has claimed it, and may have deleted its claim before MLflow looks again.
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise


def _find(client: "MlflowClient", name: str, index: int) -> "RegisteredModel | None":
    from mlflow.exceptions import MlflowException

    try:
        claim = client.get_registered_model(_claim_name(name, index))
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    # MLflow reads the tags in a second step: without them, the claim was deleted in between.
    return claim if _ENTRY in claim.tags else None


def _finish(client: "MlflowClient", name: str, claim: "RegisteredModel") -> None:
    from mlflow.exceptions import MlflowException

    text = claim.tags[_ENTRY]
    entry = ledger.entry_of(text, claim.name)
    entries = ledger.read(client, name)  # after the claim, see above
    if entry.index == len(entries) + 1 and entry.parent == ledger.end_of(entries):
        client.set_registered_model_tag(name, ledger.key_of(entry.index), text)
        client.set_registered_model_tag(name, ledger.HEAD, entry.hash)
    set_aliases(client, name)
    try:
        client.delete_registered_model(claim.name)
    except MlflowException as error:  # another process has finished it at the same time
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _claim_name(name: str, index: int) -> str:
    return f"{name}.change-{index:06d}"
