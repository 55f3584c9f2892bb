"""A client of the store that reads models and versions straight from the database.

MLflow's own takes two to three seconds of CPU to import, and then ten milliseconds and six
statements for each model that it reads; a change of a champion reads its model dozens of times. So
these reads go to the database, if it has exactly the tables that are known here. For every other
store, and for every other call, MLflow's own client answers.
"""

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from rrf import workspace
from rrf.mlflow_store import store
from rrf.mlflow_store.artifacts import SQLITE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Connection, Engine

TABLES = "dc11669786a5"
"""The version of MLflow's tables, in its table alembic_version, that the statements below fit."""
_OF_NAME = re.compile(r"name = '([^']*)'")
_NOT_DELETED = " AND current_stage != 'Deleted_Internal'"


@dataclasses.dataclass(frozen=True)
class Model:
    """Like MLflow's RegisteredModel."""

    name: str
    description: str | None
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
    source: str | None
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
    client: Any = QuickClient(engine, uri) if engine is not None else store.connect()
    return client


def _known_database(uri: str) -> "Engine | None":
    """The database at `uri` if it is one whose tables are known here."""
    if not uri.startswith((SQLITE, "postgresql")) or not store.is_made(uri):
        return None
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = store.engine(uri, keep=True)
        with engine.connect() as connection:
            tables = _rows(connection, "SELECT version_num FROM alembic_version")
    except SQLAlchemyError:
        return None  # MLflow's client says what is wrong
    return engine if tables == [(TABLES,)] else None


def _rows(connection: "Connection", statement: str, **values: str) -> list[tuple]:
    from sqlalchemy import text

    return [tuple(row) for row in connection.execute(text(statement), values)]


def artifact_uri(client: "MlflowClient", run_id: str) -> str:
    """The address of the artifacts of a run. Raises MlflowException if there is no such run."""
    if isinstance(client, QuickClient) and (uri := client.artifact_uri(run_id)):
        return uri
    return client.get_run(run_id).info.artifact_uri or ""


class QuickClient:
    """The part of MLflow's client that reads models and versions; MLflow's own does the rest.

    It keeps its connection, since a new one reads the whole schema first. So it is for one command,
    and not for hours in which the database may be exchanged for a copy.
    """

    def __init__(self, engine: "Engine", uri: str):
        self._engine, self._uri = engine, uri

    def __getattr__(self, name: str):
        return getattr(self._mlflow, name)

    @functools.cached_property
    def _mlflow(self) -> "MlflowClient":
        return store.connect()

    def search_registered_models(self, filter_string: str = "", page_token: str | None = None):
        named = _OF_NAME.fullmatch(filter_string)
        if filter_string and not named:
            return self._mlflow.search_registered_models(filter_string, page_token=page_token)
        return Page(self._models(named[1] if named else None))

    def get_registered_model(self, name: str):
        if matching := self._models(name):
            return matching[0]
        from mlflow.exceptions import RESOURCE_DOES_NOT_EXIST, MlflowException

        raise MlflowException(
            f"Registered Model with name={name} not found", RESOURCE_DOES_NOT_EXIST
        )

    def search_model_versions(self, filter_string: str, max_results: int):
        named = _OF_NAME.fullmatch(filter_string)
        if not named:
            return self._mlflow.search_model_versions(filter_string, max_results=max_results)
        return Page(self._versions(named[1]))

    def get_model_version(self, name: str, version: str):
        matching = self._versions(name, version) if version.isdecimal() else []
        return matching[0] if matching else self._mlflow.get_model_version(name, version)

    def runs(self, condition: str, **values: str) -> list[Run]:
        """The runs r that fit, newest first."""
        columns = "r.run_uuid, r.name, r.start_time, r.end_time"
        chosen = f"SELECT {columns} FROM runs r WHERE {condition} ORDER BY r.start_time DESC"
        of_tags = (
            "SELECT g.run_uuid, g.key, g.value FROM tags g JOIN runs r ON r.run_uuid = g.run_uuid "
            f"WHERE {condition}"
        )
        rows, tag_rows = self._select(chosen, of_tags, **values)
        tags: dict[str, dict[str, str]] = {row[0]: {} for row in rows}
        for run_id, key, value in tag_rows:
            tags.setdefault(run_id, {})[key] = value
        return [Run(id, name or "", start, end, tags[id]) for id, name, start, end in rows]

    def artifact_uri(self, run_id: str) -> str | None:
        """The address of the artifacts of a run; None without such a run."""
        [rows] = self._select("SELECT artifact_uri FROM runs WHERE run_uuid = :id", id=run_id)
        return rows[0][0] if rows else None

    def numbers(self, run_id: str, prefix: str) -> dict[str, float]:
        """The last values of the metrics of a run whose names begin so, without that."""
        chosen = "SELECT key, value FROM latest_metrics WHERE run_uuid = :id AND key LIKE :like"
        [rows] = self._select(chosen, id=run_id, like=f"{prefix}%")
        return {key.removeprefix(prefix): value for key, value in rows}

    def _models(self, name: str | None) -> list[Model]:
        """One model, or all of them by name."""
        models, tag_rows, alias_rows = self._select(
            _of_table("registered_models", "name, description", name=name),
            _of_table("registered_model_tags", "name, key, value", name=name),
            _of_table("registered_model_aliases", "name, alias, version", name=name),
            **({} if name is None else {"name": name}),
        )
        tags: dict[str, dict[str, str]] = {}
        for owner, key, value in tag_rows:
            tags.setdefault(owner, {})[key] = value
        aliases: dict[str, dict[str, str]] = {}
        for owner, alias, version in alias_rows:
            aliases.setdefault(owner, {})[alias] = str(version)
        return [
            Model(name, description, tags.get(name, {}), aliases.get(name, {}))
            for name, description in sorted(models)
        ]

    def _versions(self, name: str, version: str | None = None) -> list[ModelVersion]:
        """One version of a model, or all of them."""
        columns = "version, run_id, creation_time, description, source"
        also = "" if version is None else f" AND version = {int(version)}"
        versions, tag_rows = self._select(
            _of_table("model_versions", columns, f"{_NOT_DELETED}{also}", name=name),
            _of_table("model_version_tags", "version, key, value", also, name=name),
            name=name,
        )
        tags: dict[int, dict[str, str]] = {}
        for number, key, value in tag_rows:
            tags.setdefault(number, {})[key] = value
        return [
            ModelVersion(
                name, str(number), run_id, created, description, source, tags.get(number, {})
            )
            for number, run_id, created, description, source in versions
        ]

    def _select(self, *statements: str, **values: str) -> list[list[tuple]]:
        """The rows of each statement."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._engine.connect() as connection:
                return [_rows(connection, statement, **values) for statement in statements]
        except SQLAlchemyError as error:
            raise store.unusable(self._uri, error) from error


def _of_table(table: str, columns: str, also: str = "", *, name: str | None) -> str:
    """The statement for the rows of one model, or of all."""
    of_name = "" if name is None else " AND name = :name"
    return f"SELECT {columns} FROM {table} WHERE workspace = 'default'{of_name}{also}"
