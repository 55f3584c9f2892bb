"""Write the ledger and MLflow's aliases: a change is written once, whoever else changes the model.

MLflow overwrites tags and aliases without comparing. What all of its stores (SQLite, PostgreSQL, a
server in front of them) do exactly once is to create a registered model: its name is a primary key.
So a change of a ledger begins with a claim, a registered model named after the entry's number that
holds the entry. Only one process can create it, and names of this kind are reserved for it:

    create the claim -> write the entry -> set the aliases -> delete the claim

Whoever finds a claim finishes it in the same order, so a killed process blocks nobody. Somebody who
comes late and creates the claim anew finds that the entry exists, and deletes the claim. This is
safe because a finisher reads the claim before the ledger: when a stale claim is there, so is the
entry that made it stale.

The ledger is the truth. Aliases are for MLflow's pages and clients, and anybody can set them. While
a claim exists, they may be behind the ledger. Without one, a difference means that somebody changed
one of them behind our back (`agreed` raises then).
"""

import dataclasses
import logging
import re
import time
from typing import TYPE_CHECKING

from rrf import formats
from rrf.registry import entries, signatures
from rrf.registry import ledger as ledgers
from rrf.registry.entries import Entry
from rrf.registry.ledger import Ledger

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

CHAMPION, CANDIDATE, PREVIOUS, STAGING = "champion", "candidate", "previous", "staging"
CLAIM = "rrf.change-of"
"""The tag that tells a claim from a model; its value is the model's name."""
_ENTRY = "rrf.entry"
_LONGEST_TAG = 5000  # of a registered model on PostgreSQL
ROUNDS = 20
"""How often a change is tried that others are faster with, before it is given up."""
_LOOKS, _PAUSE_S = 4, 0.25
_CLAIM_NAME = re.compile(r"(.+)\.change-\d{6}")
log = logging.getLogger(__name__)


class ReservedError(ValueError):
    """A registered model stands where a change of another one is written."""

    def __init__(self, name: str, model: str, why: str = "is none"):
        super().__init__(
            f"the registered model '{model}' stands where the next change of '{name}' is written, "
            f"and {why}; to move it aside: rrf models repair {name}"
        )
        self.model = model


def append(client: "MlflowClient", ledger: Ledger, **facts) -> Entry | None:
    """Write the entry that follows a ledger, and set the aliases.

    Args:
        client: A client of the store.
        ledger: The ledger that the change was decided on.
        facts: See `Ledger.next_entry`.

    Returns:
        The entry; None if another process has written another one meanwhile.

    Raises:
        ValueError: Like `draft`.
    """
    entry = draft(ledger, **facts)
    _create_claim(client, ledger.name, entry)
    return entry if entry.hash in finish(client, ledger.name, entry.index).hashes else None


def draft(ledger: Ledger, **facts) -> Entry:
    """The signed entry that `append` would write; writes nothing.

    Raises:
        ValueError: If the entry is too large for MLflow, or nobody would believe it: there is no
            key to sign it with, or not the right one.
    """
    name = ledger.name
    if signer := signatures.signer_for(name):
        facts |= {"key": signer.public, "actor": signatures.actor(signer)}
    entry = ledger.next_entry(**facts)
    if signer:
        signature = signer.sign(signatures.ENTRY, entry.hash)
        entry = dataclasses.replace(entry, signature=signature)
    signatures.check(ledger.entries, entry)
    if len(entry.text()) > _LONGEST_TAG:
        raise ValueError(
            f"the change of '{name}' needs {len(entry.text())} characters, but MLflow's tags hold "
            f"{_LONGEST_TAG}; give a shorter reason, or a gate with fewer tasks"
        )
    return entry


def finish(client: "MlflowClient", name: str, index: int = 0) -> Ledger:
    """Finish the change that another process may have left half done; returns the ledger.

    Args:
        client: A client of the store.
        name: The registered model.
        index: The number of an entry that this process has claimed, perhaps too late.

    Raises:
        DamagedError: If the ledger is damaged.
    """
    return _finish(client, name, index)[1]


def check_way(client: "MlflowClient", ledger: Ledger) -> None:
    """Raise ReservedError if something else stands where changes of a model are written."""
    num_entries = len(ledger.entries)
    for number in {num_entries, num_entries + 1} - {0}:
        if claim := _find_claim(client, ledger.name, number):
            _check_believed(ledger, claim[0])


def finish_and_correct(client: "MlflowClient", name: str) -> Ledger:
    """Like `finish`; then set aliases that differ from the ledger, with a warning for each."""
    model, ledger = _finish(client, name)
    if not differing_aliases(model, ledger):
        return ledger
    ledger, differences = compare(client, name)
    if differences and (deleted := deleted_champions(client, ledger)):
        raise _differing(name, [deletion(name, version) for version in deleted])
    for difference in differences:
        log.warning("%s; the alias is corrected now", difference)
    if differences:
        set_aliases(client, name)
    return ledger


def agreed(client: "MlflowClient", name: str) -> Ledger:
    """The ledger, with which MLflow's aliases agree.

    Raises:
        DamagedError: If the ledger is damaged.
        ValueError: If the aliases in MLflow say something else.
    """
    ledger, differences = compare(client, name)
    if differences:
        raise _differing(name, differences)
    return ledger


def compare(client: "MlflowClient", name: str) -> tuple[Ledger, list[str]]:
    """The ledger, and a sentence for each alias in MLflow that says something else.

    Aliases are behind the ledger while a change is being written, and after a process was killed in
    the middle of one. That is no difference: the next change completes it.

    Raises:
        DamagedError: If the ledger is damaged.
    """
    looks = 0
    while True:
        model, ledger = ledgers.read_model(client, name)
        differences = [
            f"@{alias} of '{name}' is {_version(current)} in MLflow, but {_version(expected)} by "
            "the promotion ledger: somebody changed the alias or the ledger"
            for alias, (current, expected) in differing_aliases(model, ledger).items()
        ]
        if not differences or _find_claim(client, name, len(ledger.entries)):
            return ledger, []
        looks += 1
        if looks == _LOOKS:
            return ledger, differences
        time.sleep(_PAUSE_S)  # another process may have finished a change between two reads


def deleted_champions(client: "MlflowClient", ledger: Ledger) -> list[str]:
    """The versions that a rollback would pass through and that somebody has deleted in MLflow."""
    if not ledger.champions:
        return []
    found = client.search_model_versions(f"name = '{ledger.name}'", max_results=10_000)
    present = {str(version.version) for version in found}
    return [version for version in dict.fromkeys(ledger.champions) if version not in present]


def check_digest(client: "MlflowClient", name: str, version: str, digest: str) -> None:
    """Raise ValueError if a version may not be used as what MLflow says it is.

    This is so if MLflow's aliases differ from the ledger and one of them names this version, or if
    the version was registered with another checkpoint.
    """
    ledger, differences = compare(client, name)
    if differences and version in aliases_in(client.get_registered_model(name)).values():
        raise _differing(name, differences)
    registration = ledger.registration(version)
    if registration and registration.checkpoint_digest != digest:
        raise ValueError(
            f"'{name}' version {version} was registered as checkpoint "
            f"{registration.checkpoint_digest[:12]}, but MLflow says it is {digest[:12]}: somebody "
            "edited it; do not use it"
        )


def set_aliases(client: "MlflowClient", name: str, candidate: str | None = None) -> None:
    """Set the aliases to what the ledger says, and @candidate to a version, if one is given."""
    while True:
        model, ledger = ledgers.read_model(client, name)
        _set_aliases(client, model, expected_aliases(ledger), candidate)
        # Another process may have changed both meanwhile, and we may have undone its aliases.
        if ledgers.read(client, name) == ledger:
            return


def expected_aliases(ledger: Ledger) -> dict[str, str | None]:
    """The versions that the ledger makes @champion, @previous and @staging; None for none. Where
    nobody has ever asked for approvals, @staging is an alias of people's own.
    """
    expected = {PREVIOUS: ledger.previous, CHAMPION: ledger.champion}
    if any(entry.action == "stage" for entry in ledger.entries):
        expected[STAGING] = ledger.staged.version if ledger.staged else None
    return expected


def differing_aliases(
    model: "RegisteredModel", ledger: Ledger
) -> dict[str, tuple[str | None, str | None]]:
    """The aliases for which MLflow and the ledger differ -> the version by each of them."""
    current = aliases_in(model)
    return {
        alias: (current.get(alias), expected)
        for alias, expected in expected_aliases(ledger).items()
        if current.get(alias) != expected
    }


def aliases_in(model: "RegisteredModel") -> dict[str, str]:
    """The aliases in MLflow -> their version, which MLflow's stores give as number or as text."""
    return {alias: str(version) for alias, version in model.aliases.items()}


def is_claim(model: "RegisteredModel") -> bool:
    """Whether a registered model is a change that is being written."""
    match = _CLAIM_NAME.fullmatch(model.name)
    return bool(match) and model.tags.get(CLAIM) == match[1]


def is_reserved(name: str) -> bool:
    """Whether only changes of other models may have this name."""
    return bool(_CLAIM_NAME.fullmatch(name))


def busy(name: str) -> OSError:
    """The error for a change that came second every time."""
    return OSError(f"other processes kept changing '{name}' meanwhile; try again later")


def _finish(client: "MlflowClient", name: str, index: int = 0) -> "tuple[RegisteredModel, Ledger]":
    """Like `finish`; returns the model as it was read with the ledger, too."""
    for _ in range(ROUNDS):
        model, ledger = ledgers.read_model(client, name)
        num_entries = len(ledger.entries)
        claims = [
            claim
            for number in {num_entries, num_entries + 1, index} - {0}
            if (claim := _find_claim(client, name, number))
        ]
        if not claims:
            return model, ledger
        for claim in claims:
            _finish_claim(client, name, *claim)
    raise busy(name)


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
            _set_alias(client, model.name, alias, version)


def _set_alias(client: "MlflowClient", name: str, alias: str, version: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        # Somebody has deleted the version. The next read says so; this change is complete.
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _create_claim(client: "MlflowClient", name: str, entry: Entry) -> None:
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


def _find_claim(client: "MlflowClient", name: str, index: int) -> tuple[Entry, str] | None:
    """The entry of the claim on a number, also as text; None if there is no claim.

    Raises:
        ReservedError: If something else stands in its place.
    """
    text: str | None = ""
    for _ in range(_LOOKS):
        text = _claimed(client, _claim_name(name, index))
        if text is None:
            return None
        if text:
            break
        time.sleep(_PAUSE_S)  # MLflow reads the tags in a second step; the claim may be gone by now
    assert text is not None
    try:
        entry = entries.entry_of(text, _claim_name(name, index))
        if (entry.model, entry.index) == (name, index) and entries.is_sealed(text, entry):
            return entry, text
    except formats.NewerFormatError:
        raise
    except (ValueError, TypeError):
        pass
    raise ReservedError(name, _claim_name(name, index))


def _claimed(client: "MlflowClient", claim_name: str) -> str | None:
    """The entry in a claim as text, "" without one; None if there is no claim."""
    from mlflow.exceptions import MlflowException

    try:
        claim = client.get_registered_model(claim_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return claim.tags.get(_ENTRY, "")


def _finish_claim(client: "MlflowClient", name: str, entry: Entry, text: str) -> None:
    from mlflow.exceptions import MlflowException

    ledger = ledgers.read(client, name)  # after the claim, see above
    if _follows(ledger, entry):
        _check_believed(ledger, entry)
        client.set_registered_model_tag(name, ledgers.key_of(entry.index), text)
        client.set_registered_model_tag(name, ledgers.HEAD, entry.hash)
    set_aliases(client, name)
    try:
        client.delete_registered_model(_claim_name(name, entry.index))
    except MlflowException as error:  # another process has finished it at the same time
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _follows(ledger: Ledger, entry: Entry) -> bool:
    return entry.index == len(ledger.entries) + 1 and entry.parent == ledger.end


def _check_believed(ledger: Ledger, entry: Entry) -> None:
    """Raise ReservedError for a claimed entry that nobody would believe: who cannot sign must not
    have it written by others.
    """
    if _follows(ledger, entry) and (problem := signatures.problem_of(ledger.entries, entry)):
        claim = _claim_name(ledger.name, entry.index)
        raise ReservedError(ledger.name, claim, f"holds an entry that {problem}")


def _claim_name(name: str, index: int) -> str:
    return f"{name}.change-{index:06d}"


def deletion(name: str, version: str) -> str:
    """A sentence about a champion that is gone."""
    return (
        f"version {version} of '{name}', a champion by the promotion ledger, was deleted in MLflow"
    )


def _differing(name: str, differences: list[str]) -> ValueError:
    return ValueError(f"{'; '.join(differences)}; to put it right: rrf models repair {name}")


def _version(number: str | None) -> str:
    return f"version {number}" if number else "no version"
