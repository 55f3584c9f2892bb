"""Versions of registered models, found by number or by alias.

@champion, @previous and @staging come from the ledger, and MLflow's aliases are compared with it
(`rrf.registry.changes`).
"""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.lineage import facts_in
from rrf.registry import changes
from rrf.registry.changes import CHAMPION, PREVIOUS, STAGING
from rrf.registry.client import connect
from rrf.registry.entries import Registration
from rrf.registry.ledger import Ledger

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

CHECKPOINT_DIGEST = "checkpoint_digest"
"""The tag that holds the digest of a version's checkpoint, also on its logged model."""
_REFERENCE = re.compile(r"[^/@]+(@[^/@]+|/[0-9]+)")


@dataclasses.dataclass(frozen=True)
class Version:
    """One version of a registered model."""

    name: str
    version: str
    run_id: str
    created_ms: int
    tags: dict[str, str]
    aliases: tuple[str, ...]
    description: str = ""

    @property
    def checkpoint_digest(self) -> str:
        """The digest of the version's deployable checkpoint."""
        return self.tags.get(CHECKPOINT_DIGEST, "")

    @property
    def as_registered(self) -> Registration:
        """What the ledger keeps of the version's tags."""
        return Registration(self.checkpoint_digest, atomic.digest_of(facts_in(self.tags)))

    @property
    def reference(self) -> str:
        """Its name for commands."""
        return f"models:/{self.name}/{self.version}"

    def __str__(self) -> str:
        return f"'{self.name}' version {self.version}"


def champion(name: str) -> Version | None:
    """The champion; None if there is none yet.

    Raises:
        ValueError: If the ledger is damaged, or MLflow's aliases say something else.
    """
    client = connect()
    if not exists(client, name):
        return None
    number = changes.agreed(client, name).champion
    return find(f"{name}/{number}", client) if number else None


def find(reference: str, client: "MlflowClient | None" = None) -> Version:
    """Find a version by "NAME@alias", "NAME/3" or "NAME" (the champion).

    A leading "models:/" is allowed.

    Raises:
        ValueError: If there is no such model, version or alias. For an alias also if the ledger is
            damaged, or MLflow's aliases say something else.
    """
    client = client or connect()
    path = reference.removeprefix("models:/")
    name, _, alias = path.partition("@")
    name, _, number = name.partition("/")
    versions = versions_in(client, _existing(client, name))
    if not alias and not number:
        alias = CHAMPION
    if alias in (CHAMPION, PREVIOUS, STAGING):
        ledger = changes.agreed(client, name)
        if alias == CHAMPION and (withdrawal := ledger.withdrawn):
            raise ValueError(
                f"'{name}' has no champion: version {withdrawal.version} was withdrawn "
                f"({withdrawal.reason}); see: rrf models ledger {name}"
            )
        expected = changes.expected_aliases(ledger).get(alias)
        number, alias = expected or number, "" if expected else alias
    for version in versions:
        if version.version == number or alias in version.aliases:
            return version
    known = [v.version for v in versions] + [f"@{a}" for v in versions for a in v.aliases]
    raise ValueError(
        f"'{name}' has no {f'version {number}' if number else f'@{alias}'}; "
        f"it has {', '.join(known) or 'none'}"
    )


def contradictions(ledger: Ledger, version: Version) -> list[str]:
    """A sentence for each thing that the tags of a version say otherwise than the ledger."""
    registration, tags = ledger.registration(version.version), version.tags
    if registration is None:
        return []
    differences, edited = [], "somebody edited the tags"
    current = version.as_registered
    if current.checkpoint_digest != registration.checkpoint_digest:
        differences.append(
            f"{version} was registered as checkpoint {registration.checkpoint_digest[:12]}, but "
            f"MLflow says {current.checkpoint_digest[:12] or 'none'}: {edited}"
        )
    if current.lineage_digest != registration.lineage_digest:
        differences.append(
            f"the lineage of {version} is not the one it was registered with: {edited}"
        )
    success = {e.digest: f"{e.success:.6f}" for e in ledger.evaluations(version.version)}
    shown = tags.get("evaluation.digest")
    if shown and tags.get("evaluation.success") != success.get(shown):
        differences.append(
            f"the success of {version} is {tags.get('evaluation.success')} in MLflow, but "
            f"{success.get(shown, 'unknown')} by the ledger: {edited}"
        )
    return differences


def is_reference(text: str) -> bool:
    """Whether `text` names a registered version ("NAME@alias", "NAME/3", "models:/...").

    Without "models:/", an existing path is not a reference.
    """
    if text.startswith("models:/"):
        return True
    return bool(_REFERENCE.fullmatch(text)) and not Path(text).exists()


def exists(client: "MlflowClient", name: str) -> bool:
    """Whether there is a registered model with this name; asked in the way that also the client of
    `rrf.registry.listing` answers without MLflow.
    """
    quoted = name.replace("'", "")
    return any(
        model.name == name for model in client.search_registered_models(f"name = '{quoted}'")
    )


def model_named(client: "MlflowClient", name: str) -> "RegisteredModel | None":
    """The registered model with this name; None if there is none. MLflow answers this three times
    as fast as a search.
    """
    absent = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # no model has an invalid name
    try:
        return client.get_registered_model(name)
    except Exception as error:  # an MlflowException; to name its class is to import MLflow
        if getattr(error, "error_code", None) not in absent:
            raise
        return None


def check_exists(client: "MlflowClient", name: str) -> None:
    """Raise ValueError if there is no registered model with this name."""
    _existing(client, name)


def versions_of(client: "MlflowClient", name: str) -> list[Version]:
    """All versions of a model, newest first."""
    return versions_in(client, client.get_registered_model(name))


def versions_in(client: "MlflowClient", model: "RegisteredModel") -> list[Version]:
    """All versions of a model that has been read, newest first."""
    name, aliases = model.name, dict[str, list[str]]()
    for alias, version in changes.aliases_in(model).items():
        aliases.setdefault(version, []).append(alias)
    versions = [
        Version(
            name,
            str(v.version),
            v.run_id or "",
            v.creation_timestamp or 0,
            dict(v.tags),
            tuple(sorted(aliases.get(str(v.version), []))),
            v.description or "",
        )
        for v in client.search_model_versions(f"name = '{name}'", max_results=10_000)
    ]
    return sorted(versions, key=lambda v: int(v.version), reverse=True)


def _existing(client: "MlflowClient", name: str) -> "RegisteredModel":
    if model := model_named(client, name):
        return model
    raise ValueError(f"there is no model '{name}'; see: rrf models list")
