"""What the ledger of a model says, compared with MLflow's aliases.

The ledger is the truth. Aliases are for MLflow's pages and clients, and anybody can set them. So
whoever asks for @champion or @previous gets the ledger's answer, and an error if the alias differs.
"""

import dataclasses
import time
from typing import TYPE_CHECKING

from rrf.tracking import changes, ledger
from rrf.tracking.ledger import Entry, ModelGate

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOOKS, _PAUSE_S = 4, 0.25


@dataclasses.dataclass(frozen=True)
class Standing:
    """The champions and the gate of a model by its ledger."""

    name: str
    entries: list[Entry]

    @property
    def champion(self) -> str | None:
        """The version to use; None before the first promotion."""
        return ledger.champion_of(self.entries)

    @property
    def revoked(self) -> dict[str, str]:
        """Versions that were rolled back and may not be promoted again -> the reason."""
        return ledger.revoked(self.entries)

    @property
    def gate(self) -> ModelGate | None:
        """The gate that rules the model; None if none was recorded."""
        return ledger.gate_of(self.entries)


def read(client: "MlflowClient", name: str) -> Standing:
    """What the ledger says.

    Raises:
        DamagedError: If the ledger is damaged.
        ValueError: If the aliases in MLflow say something else.
    """
    standing, differences = compare(client, name)
    if differences:
        raise _differing(name, differences)
    return standing


def believed(client: "MlflowClient", name: str) -> Standing:
    """What the ledger says, whatever the aliases are. Raises DamagedError if it is damaged."""
    return Standing(name, ledger.read(client, name))


def check_digest(client: "MlflowClient", name: str, version: str, digest: str) -> None:
    """Raise ValueError if a version may not be used as what MLflow says it is.

    This is so if MLflow's aliases differ from the ledger and one of them names this version, or if
    the version was promoted with another checkpoint.
    """
    now, differences = compare(client, name)
    if differences and version in changes.aliases_in(client.get_registered_model(name)).values():
        raise _differing(name, differences)
    for entry in now.entries:
        promoted = entry.action in ("promote", "rollback") and entry.champion == version
        if promoted and entry.checkpoint_digest != digest:
            raise ValueError(
                f"'{name}' version {version} was promoted as checkpoint "
                f"{(entry.checkpoint_digest or '')[:12]} (change {entry.index} of the ledger), but "
                f"is {digest[:12]} in MLflow; somebody edited it, do not use it"
            )


def problem_with(client: "MlflowClient", name: str) -> str:
    """Why the ledger or the aliases of a model cannot be believed, or ""."""
    try:
        read(client, name)
    except ValueError as error:
        return str(error)
    return ""


def compare(client: "MlflowClient", name: str) -> tuple[Standing, list[str]]:
    """What the ledger says, and a sentence for each alias in MLflow that says something else.

    Aliases are behind the ledger while a change is being written, and after a process was killed in
    the middle of one. That is no difference: the next change completes it.

    Raises:
        DamagedError: If the ledger is damaged.
    """
    looks = 0
    while True:
        model = client.get_registered_model(name)
        entries = ledger.parse(name, model.tags)
        differences = [
            f"@{alias} of '{name}' is {_version(current)} in MLflow, but {_version(expected)} by "
            "the promotion ledger: somebody changed the alias or the ledger"
            for alias, (current, expected) in changes.differing_aliases(model, entries).items()
        ]
        if not differences or changes.is_under_way(client, name, entries):
            return Standing(name, entries), []
        looks += 1
        if looks == _LOOKS:
            return Standing(name, entries), differences
        time.sleep(_PAUSE_S)  # another process may have finished a change between two reads


def _differing(name: str, differences: list[str]) -> ValueError:
    return ValueError(f"{'; '.join(differences)}; put it right with: rrf models repair {name}")


def _version(number: str | None) -> str:
    return f"version {number}" if number else "no version"
