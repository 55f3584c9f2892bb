"""What is wrong with an MLflow store that cannot be used, in one line: what, where, what to type.

MLflow reports it as its own exceptions, with the SQL statement or the HTTP request in the text, or
as those of sqlalchemy and requests. Here all of them become an `OSError`; everything else that
MLflow refuses (an unknown run, an invalid name) keeps its type, because callers tell these apart.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from rrf import workspace

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOGIN = (
    "check user and password in MLFLOW_TRACKING_URI, or in MLFLOW_TRACKING_USERNAME and "
    "MLFLOW_TRACKING_PASSWORD"
)
_HINTS = {
    "is locked": "another process writes to it or holds it: wait, or end that process, then repeat",
    "readonly": "you may not write there; change that with: chmod -R u+w .rrf",
    "read-only": "you may not write there; change that with: chmod -R u+w .rrf",
    "is full": "free some space; `df -h .` shows how much there is",
    "no space left": "free some space; `df -h .` shows how much there is",
    "not a database": "move the file away, or restore it from a copy",
    "malformed": "move the file away, or restore it from a copy",
    "authentic": _LOGIN,
    "password": _LOGIN,
    "401": _LOGIN,
    "403": _LOGIN,
}
_START = (
    "start the server with `rrf services up`, or unset MLFLOW_TRACKING_URI to use the local one"
)
_AWAY = ("TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR", "UNAUTHENTICATED")


def unusable(uri: str, error: BaseException) -> OSError:
    """The error for a store that cannot be reached, read or written because of `error`."""
    root = error
    while (not root.__suppress_context__ and root.__context__) or root.__cause__:
        root = root.__cause__ or root.__context__
        assert root
    reason = (str(root) or type(root).__name__).strip().splitlines()[0]
    found = next((hint for mark, hint in _HINTS.items() if mark in reason.lower()), None)
    if found is None and not uri.startswith("sqlite:"):
        return OSError(workspace.shown_uri(f"no MLflow store at {uri}: {reason}; {_START}"))
    found = found or "check the file and its folder, then repeat"
    return OSError(workspace.shown_uri(f"the MLflow store at {uri}: {reason}; {found}"))


def translating(client: type["MlflowClient"], uri: str) -> "MlflowClient":
    """A client for the store at `uri` whose methods raise `unusable` when the store is.

    Args:
        client: MLflow's class of clients.
        uri: The store, for tracking and registry.
    """

    class Client(client):
        def __getattribute__(self, name: str):
            attribute = super().__getattribute__(name)
            if name.startswith("_") or not callable(attribute):
                return attribute
            return translated(_upserting(attribute) if name.startswith("set_") else attribute, uri)

    return Client(tracking_uri=uri, registry_uri=uri)


def translated(call: Callable, uri: str) -> Callable:
    """`call`, which uses the store at `uri`, raising `unusable` when the store is."""

    @functools.wraps(call)
    def method(*args, **kwargs):
        import requests
        import sqlalchemy.exc
        from mlflow.exceptions import MlflowException

        try:
            return call(*args, **kwargs)
        except MlflowException as error:
            if error.error_code == "PERMISSION_DENIED":
                raise PermissionError(str(unusable(uri, error))) from error
            if error.error_code not in _AWAY and not _is_of_the_database(error.__cause__):
                raise
            raise unusable(uri, error) from error
        except (sqlalchemy.exc.SQLAlchemyError, requests.RequestException) as error:
            raise unusable(uri, error) from error

    return method


def _upserting(call: Callable) -> Callable:
    """`call`, which sets a tag or an alias, for two processes that set it first at the same time.

    MLflow looks whether it exists and then inserts it. Of two processes, the second one's insertion
    fails; called again, it changes what the other has inserted.
    """

    @functools.wraps(call)
    def method(*args, **kwargs):
        from mlflow.exceptions import MlflowException

        try:
            return call(*args, **kwargs)
        except MlflowException as error:
            if not any(mark in str(error) for mark in ("IntegrityError", "UniqueViolation")):
                raise
        return call(*args, **kwargs)

    return method


def _is_of_the_database(error: BaseException | None) -> bool:
    """Whether the database itself has failed, and not one statement with the values in it."""
    from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, ProgrammingError

    refused = (DataError, IntegrityError, ProgrammingError)
    return isinstance(error, DatabaseError) and not isinstance(error, refused)
