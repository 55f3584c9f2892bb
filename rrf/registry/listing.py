"""What is in the registry, for commands that people wait for: models, versions, problems.

To import MLflow takes two to three seconds of CPU, several times what `rrf models list` does
besides. So these reads go straight to the database, if it has exactly the tables that are known
here. For every other store, and for every other call, MLflow's own client answers.
"""

import dataclasses
import fnmatch
import re
from typing import TYPE_CHECKING, Any

from rrf import workspace
from rrf.config import did_you_mean
from rrf.mlflow_store import store
from rrf.mlflow_store.artifacts import SQLITE
from rrf.registry import changes
from rrf.registry import ledger as ledgers
from rrf.registry.entries import REVOKED_BY, Entry
from rrf.registry.versions import (
    Version,
    check_exists,
    contradictions,
    exists,
    versions_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Engine

TABLES = "dc11669786a5"
"""The version of MLflow's tables, in its table alembic_version, that the statements below fit."""
_COSTS = "cost/"
_OF_NAME = re.compile(r"name = '([^']*)'")
_NOT_DELETED = " AND current_stage != 'Deleted_Internal'"


def models() -> list[str]:
    """The names of all registered models."""
    return _names(connect())


def versions(name: str | None = None) -> list[Version]:
    """All versions of a model, or of all models, newest first.

    Raises:
        ValueError: If there is no such model.
    """
    client = connect()
    if name and not exists(client, name):
        raise ValueError(f"there is no model '{name}'{did_you_mean(name, _names(client))}")
    names = [name] if name else _names(client)
    return [version for model in names for version in versions_of(client, model)]


def problems(name: str | None = None) -> list[str]:
    """Why ledger, aliases or tags of a model, or of any model, cannot be believed."""
    client, problems = connect(), []
    for model in [name] if name else _names(client):
        try:
            ledger = changes.agreed(client, model)
            for version in versions_of(client, model):
                problems += contradictions(ledger, version)
        except ValueError as error:
            problems.append(str(error))
    return problems


def ledger_ends(pattern: str = "*", only_proved: bool = False) -> dict[str, str]:
    """Model -> hash of the last entry of its ledger, of the models whose names fit; those that have
    none are left out.

    Args:
        pattern: Of names.
        only_proved: Of a damaged ledger, take the last entry before the damage.

    Raises:
        DamagedError: If one of the ledgers cannot be believed as it is, unless `only_proved`.
    """
    client = connect()
    fitting = [name for name in _names(client) if fnmatch.fnmatchcase(name, pattern)]
    read = {
        name: proved_entries(name) if only_proved else ledgers.read(client, name).entries
        for name in fitting
    }
    return {name: entries[-1].hash for name, entries in read.items() if entries}


def proved_entries(name: str) -> tuple[Entry, ...]:
    """The entries of a model's ledger up to the first that is damaged. Raises ValueError if there
    is no such model.
    """
    client = connect()
    check_exists(client, name)
    return ledgers.proved(name, client.get_registered_model(name).tags)[0].entries


def standing_of(name: str, version: str) -> str:
    """Why a version must not be used any more, or "": it was withdrawn or rolled back.

    Raises:
        ValueError: If there is no such model, or its ledger cannot be believed.
        OSError: If the store cannot be reached.
    """
    client = connect()
    check_exists(client, name)
    revocation = ledgers.read(client, name).revoked.get(version)
    if revocation is None:
        return ""
    return revoked_because(name, version, revocation)


def revoked_because(name: str, version: str, revocation: Entry) -> str:
    """A sentence about a version that is not allowed any more."""
    done = REVOKED_BY[revocation.action]
    return f"version {version} of '{name}' was {done} at {revocation.time}: {revocation.reason}"


def run_with(client: "MlflowClient", run_id: str) -> "Run | None":
    """The run with this id; None if it was deleted for ever."""
    if isinstance(client, _Client):
        return next(iter(client.runs("r.run_uuid = :id", id=run_id)), None)
    from mlflow.exceptions import MlflowException

    try:
        return _plain(client.get_run(run_id))
    except MlflowException:
        return None


def costs_of(client: "MlflowClient", run_id: str) -> dict[str, float]:
    """What a run cost: wall_s, cpu_s, gpu_s, …; {} if no flow has measured it (`flows.cost`)."""
    if isinstance(client, _Client):
        return client.numbers(run_id, _COSTS)
    from mlflow.exceptions import MlflowException

    try:
        metrics = client.get_run(run_id).data.metrics
    except MlflowException:
        return {}
    return {k.removeprefix(_COSTS): v for k, v in metrics.items() if k.startswith(_COSTS)}


def runs_tagged(client: "MlflowClient", key: str, value: str | None = None) -> "list[Run]":
    """The runs of all experiments with a tag, or with this value of it, newest first."""
    if isinstance(client, _Client):
        fits = (
            "t.key = :key AND t.value != ''"
            if value is None
            else "t.key = :key AND t.value = :value"
        )
        of_tags = f"r.run_uuid IN (SELECT t.run_uuid FROM tags t WHERE {fits})"
        given = {"key": key} if value is None else {"key": key, "value": value}
        return client.runs(f"r.lifecycle_stage = 'active' AND {of_tags}", **given)
    wanted = f"tags.`{key}` != ''" if value is None else f"tags.`{key}` = '{value}'"
    experiments = [each.experiment_id for each in client.search_experiments()]
    found, token = [], ""
    while token is not None:
        page = client.search_runs(experiments, wanted, max_results=1000, page_token=token or None)
        found += map(_plain, page)
        token = page.token or None
    return found


def _plain(run) -> "Run":
    info = run.info
    return Run(
        info.run_id, info.run_name or "", info.start_time, info.end_time, dict(run.data.tags)
    )


def _names(client: "MlflowClient") -> list[str]:
    names, token = [], ""
    while token is not None:
        page = client.search_registered_models(page_token=token or None)
        names += [model.name for model in page if not changes.is_claim(model)]
        token = page.token or None
    return sorted(names)


@dataclasses.dataclass(frozen=True)
class Model:
    """Like MLflow's RegisteredModel."""

    name: str
    tags: dict[str, str]
    aliases: dict[str, str]


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """Like MLflow's ModelVersion."""

    name: str
    version: str
    run_id: str | None
    creation_timestamp: int
    description: str | None
    tags: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a lineage needs of a run."""

    run_id: str
    name: str
    start_ms: int | None
    end_ms: int | None
    tags: dict[str, str]


class Page(list):
    """Like a page of MLflow's results. It holds all of them, so there is no next one."""

    token = None


def connect() -> "MlflowClient":
    """A client of the workspace's store that reads models and versions without MLflow if it can.

    Raises:
        OSError: If the store cannot be reached.
    """
    uri = workspace.tracking_uri()
    engine = _known_database(uri)
    client: Any = _Client(engine, uri) if engine is not None else store.connect()
    return client


def _known_database(uri: str) -> "Engine | None":
    """The database at `uri` if it is one whose tables are known here."""
    if not uri.startswith((SQLITE, "postgresql")) or not store.is_made(uri):
        return None
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = store.engine(uri)
        tables = _rows(engine, "SELECT version_num FROM alembic_version")
    except SQLAlchemyError:
        return None  # MLflow's client says what is wrong
    return engine if tables == [(TABLES,)] else None


def _rows(engine: "Engine", statement: str, **values: str) -> list[tuple]:
    from sqlalchemy import text

    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement), values)]


class _Client:
    """The part of MLflow's client that reads models and versions; MLflow's own does the rest."""

    def __init__(self, engine: "Engine", uri: str):
        self._engine, self._uri = engine, uri

    def __getattr__(self, name: str):
        return getattr(store.connect(), name)

    def search_registered_models(self, filter_string: str = "", page_token: str | None = None):
        named = _OF_NAME.fullmatch(filter_string)
        if filter_string and not named:
            return store.connect().search_registered_models(filter_string, page_token=page_token)
        return Page(self._models(named[1] if named else None))

    def get_registered_model(self, name: str):
        matching = self._models(name)
        return matching[0] if matching else store.connect().get_registered_model(name)

    def search_model_versions(self, filter_string: str, max_results: int):
        named = _OF_NAME.fullmatch(filter_string)
        if not named:
            return store.connect().search_model_versions(filter_string, max_results=max_results)
        columns = "version, run_id, creation_time, description"
        versions = self._select("model_versions", columns, named[1], _NOT_DELETED)
        tags: dict[int, dict[str, str]] = {}
        of_tags = self._select("model_version_tags", "version, key, value", named[1])
        for number, key, value in of_tags:
            tags.setdefault(number, {})[key] = value
        return Page(
            ModelVersion(named[1], str(number), run_id, created, description, tags.get(number, {}))
            for number, run_id, created, description in versions
        )

    def runs(self, condition: str, **values: str) -> list[Run]:
        """The runs r that fit, newest first."""
        from sqlalchemy.exc import SQLAlchemyError

        columns = "r.run_uuid, r.name, r.start_time, r.end_time"
        chosen = f"SELECT {columns} FROM runs r WHERE {condition} ORDER BY r.start_time DESC"
        of_tags = (
            "SELECT g.run_uuid, g.key, g.value FROM tags g JOIN runs r ON r.run_uuid = g.run_uuid "
            f"WHERE {condition}"
        )
        try:
            rows = _rows(self._engine, chosen, **values)
            tags: dict[str, dict[str, str]] = {row[0]: {} for row in rows}
            for run_id, key, value in _rows(self._engine, of_tags, **values):
                tags.setdefault(run_id, {})[key] = value
        except SQLAlchemyError as error:
            raise store.unusable(self._uri, error) from error
        return [Run(id, name or "", start, end, tags[id]) for id, name, start, end in rows]

    def numbers(self, run_id: str, prefix: str) -> dict[str, float]:
        """The last values of the metrics of a run whose names begin so, without that."""
        from sqlalchemy.exc import SQLAlchemyError

        chosen = "SELECT key, value FROM latest_metrics WHERE run_uuid = :id AND key LIKE :like"
        try:
            rows = _rows(self._engine, chosen, id=run_id, like=f"{prefix}%")
        except SQLAlchemyError as error:
            raise store.unusable(self._uri, error) from error
        return {key.removeprefix(prefix): value for key, value in rows}

    def _models(self, name: str | None) -> list[Model]:
        names = [row[0] for row in self._select("registered_models", "name", name)]
        tags: dict[str, dict[str, str]] = {name: {} for name in names}
        aliases: dict[str, dict[str, str]] = {name: {} for name in names}
        for owner, key, value in self._select("registered_model_tags", "name, key, value", name):
            tags.setdefault(owner, {})[key] = value
        columns = "name, alias, version"
        for owner, alias, version in self._select("registered_model_aliases", columns, name):
            aliases.setdefault(owner, {})[alias] = str(version)
        return [Model(model, tags[model], aliases[model]) for model in sorted(names)]

    def _select(self, table: str, columns: str, name: str | None, also: str = "") -> list[tuple]:
        """Rows of a table, of one model or of all."""
        from sqlalchemy.exc import SQLAlchemyError

        statement = f"SELECT {columns} FROM {table} WHERE workspace = 'default'{also}"
        try:
            if name is None:
                return _rows(self._engine, statement)
            return _rows(self._engine, f"{statement} AND name = :name", name=name)
        except SQLAlchemyError as error:
            raise store.unusable(self._uri, error) from error
