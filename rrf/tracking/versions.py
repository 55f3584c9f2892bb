"""Read the registry: versions of models by number or by alias.

@champion and @previous come from the ledger, and MLflow's aliases are compared with it
(`rrf.tracking.standing`).
"""

import dataclasses
from typing import TYPE_CHECKING

from rrf.config import did_you_mean
from rrf.tracking import changes, quick_reads, standing, store
from rrf.tracking import ledger as ledgers
from rrf.tracking.changes import CANDIDATE, CHAMPION, PREVIOUS
from rrf.tracking.ledger import Entry

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["CANDIDATE", "CHAMPION", "PREVIOUS"]


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
    """The champion; None if there is none yet.

    Raises:
        ValueError: If the ledger is damaged, or MLflow's aliases say something else.
    """
    client = store.connect()
    if not exists(client, name):
        return None
    best = standing.read(client, name).champion
    return find(f"{name}/{best}", client) if best else None


def ledger(name: str) -> list[Entry]:
    """The promotion ledger, oldest entry first. Raises ValueError if it was tampered with."""
    client = store.connect()
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    return ledgers.read(client, name)


def problems(name: str | None = None) -> list[str]:
    """Why the ledger or the aliases of a model, or of any model, cannot be believed."""
    client = quick_reads.connect()
    names = [name] if name else _names(client)
    found = (standing.problem_with(client, each) for each in names)
    return [problem for problem in found if problem]


def models() -> list[str]:
    """The names of all registered models."""
    return _names(quick_reads.connect())


def _names(client: "MlflowClient") -> list[str]:
    names, token = [], ""
    while token is not None:
        page = client.search_registered_models(page_token=token or None)
        names += [model.name for model in page if changes.CLAIM not in model.tags]
        token = page.token or None
    return sorted(names)


def versions(name: str | None = None) -> list[Version]:
    """All versions of a model, or of all models, newest first.

    Raises:
        ValueError: If there is no such model.
    """
    client = quick_reads.connect()
    if name and not exists(client, name):
        raise ValueError(f"there is no model '{name}'{did_you_mean(name, _names(client))}")
    names = [name] if name else _names(client)
    return [version for each in names for version in versions_of(client, each)]


def find(reference: str, client: "MlflowClient | None" = None) -> Version:
    """Find a version by "NAME@alias", "NAME/3" or "NAME" (the champion).

    A leading "models:/" is allowed.

    Raises:
        ValueError: If there is no such model, version or alias. For an alias also if the ledger is
            damaged, or MLflow's aliases say something else.
    """
    client = client or store.connect()
    path = reference.removeprefix("models:/")
    name, _, alias = path.partition("@")
    name, _, number = name.partition("/")
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    found = versions_of(client, name)
    wanted = alias or ("" if number else CHAMPION)
    if wanted in (CHAMPION, PREVIOUS):
        expected = changes.expected_aliases(standing.read(client, name).entries)
        number, wanted = expected[wanted] or number, "" if expected[wanted] else wanted
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
    for alias, version in changes.aliases_in(client.get_registered_model(name)).items():
        aliases.setdefault(version, []).append(alias)
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
