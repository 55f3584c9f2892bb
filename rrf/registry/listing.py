"""What is in the registry, for commands that people wait for: models, versions, problems.

They read without MLflow where they can (`rrf.registry.client`): to import it takes several times
the CPU of `rrf models list` besides.
"""

import fnmatch
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rrf.config import did_you_mean
from rrf.registry import changes
from rrf.registry import ledger as ledgers
from rrf.registry.client import QuickClient, Run, connect
from rrf.registry.entries import Entry
from rrf.registry.versions import (
    Version,
    check_exists,
    contradictions,
    exists,
    versions_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

_COSTS = "cost/"


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


def run_with(client: "MlflowClient", run_id: str) -> Run | None:
    """The run with this id; None if it was deleted for ever."""
    if isinstance(client, QuickClient):
        return next(iter(client.runs("r.run_uuid = :id", id=run_id)), None)
    from mlflow.exceptions import MlflowException

    try:
        return _plain(client.get_run(run_id))
    except MlflowException:
        return None


def costs_of(client: "MlflowClient", run_id: str) -> dict[str, float]:
    """What a run cost: wall_s, cpu_s, gpu_s, …; {} if no flow has measured it (`flows.cost`)."""
    if isinstance(client, QuickClient):
        return client.numbers(run_id, _COSTS)
    from mlflow.exceptions import MlflowException

    try:
        metrics = client.get_run(run_id).data.metrics
    except MlflowException:
        return {}
    return {k.removeprefix(_COSTS): v for k, v in metrics.items() if k.startswith(_COSTS)}


def runs_tagged(client: "MlflowClient", key: str, *values: str) -> list[Run]:
    """The runs of all experiments with a tag, or with one of these values of it, newest first (of
    each value, where MLflow answers)."""
    if isinstance(client, QuickClient):
        named = {f"value{number}": value for number, value in enumerate(values)}
        of_values = f"IN ({', '.join(f':{name}' for name in named)})" if values else "!= ''"
        fits = f"SELECT t.run_uuid FROM tags t WHERE t.key = :key AND t.value {of_values}"
        condition = f"r.lifecycle_stage = 'active' AND r.run_uuid IN ({fits})"
        return client.runs(condition, key=key, **named)
    experiments = [each.experiment_id for each in client.search_experiments()]
    found = []
    for wanted in [f"= '{value}'" for value in values] or ["!= ''"]:
        token, wanted = "", f"tags.`{key}` {wanted}"
        while token is not None:
            page = client.search_runs(
                experiments, wanted, max_results=1000, page_token=token or None
            )
            found += map(_plain, page)
            token = page.token or None
    return found


def _plain(run) -> Run:
    info = run.info
    return Run(
        info.run_id, info.run_name or "", info.start_time, info.end_time, dict(run.data.tags)
    )


def read_all(client: "MlflowClient") -> "Iterator[RegisteredModel]":
    """All registered models with their tags."""
    token = ""
    while token is not None:
        page = client.search_registered_models(page_token=token or None)
        yield from (model for model in page if not changes.is_claim(model))
        token = page.token or None


def _names(client: "MlflowClient") -> list[str]:
    return sorted(model.name for model in read_all(client))
