"""Read the registry: versions of models by number, by alias or by the ledger."""

import dataclasses
from typing import TYPE_CHECKING

from rrf.config import did_you_mean
from rrf.tracking import ledger as ledgers
from rrf.tracking import store
from rrf.tracking.ledger import Entry

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION, CANDIDATE, PREVIOUS = "champion", "candidate", "previous"


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
        return self.tags.get("checkpoint_digest", "")


def champion(name: str) -> Version | None:
    """The champion according to the ledger; None if there is none yet."""
    client = store.connect()
    if not exists(client, name):
        return None
    stack = ledgers.champions(ledgers.read(client, name))
    return find(f"{name}/{stack[-1]}", client) if stack else None


def ledger(name: str) -> list[Entry]:
    """The promotion ledger, oldest entry first. Raises ValueError if it was tampered with."""
    client = store.connect()
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    return ledgers.read(client, name)


def models() -> list[str]:
    """The names of all registered models."""
    client, names, token = store.connect(), [], ""
    while token is not None:
        page = client.search_registered_models(page_token=token or None)
        names += [model.name for model in page]
        token = page.token or None
    return sorted(names)


def versions(name: str | None = None) -> list[Version]:
    """All versions of a model, or of all models, newest first.

    Raises:
        ValueError: If there is no such model.
    """
    client = store.connect()
    if name and not exists(client, name):
        raise ValueError(f"there is no model '{name}'{did_you_mean(name, models())}")
    names = [name] if name else models()
    return [version for each in names for version in versions_of(client, each)]


def find(reference: str, client: "MlflowClient | None" = None) -> Version:
    """Find a version by "NAME@alias", "NAME/3" or "NAME" (the champion).

    A leading "models:/" is allowed.

    Raises:
        ValueError: If there is no such model, version or alias.
    """
    client = client or store.connect()
    path = reference.removeprefix("models:/")
    name, _, alias = path.partition("@")
    name, _, number = name.partition("/")
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    found = versions_of(client, name)
    wanted = alias or ("" if number else CHAMPION)
    for version in found:
        if version.version == number or wanted in version.aliases:
            return version
    known = ", ".join([v.version for v in found] + [f"@{a}" for v in found for a in v.aliases])
    raise ValueError(
        f"'{name}' has no {f'version {number}' if number else f'@{wanted}'}; "
        f"it has {known or 'none'}"
    )


def exists(client: "MlflowClient", name: str) -> bool:
    quoted = name.replace("'", "")
    return any(
        model.name == name for model in client.search_registered_models(f"name = '{quoted}'")
    )


def versions_of(client: "MlflowClient", name: str) -> list[Version]:
    aliases: dict[str, list[str]] = {}
    for alias, version in client.get_registered_model(name).aliases.items():
        aliases.setdefault(str(version), []).append(alias)
    found = [
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
    return sorted(found, key=lambda v: int(v.version), reverse=True)
