"""The numbers of the registry: champions with their success, ledgers, approvals, what is damaged.

The store is read as `rrf models list` reads it: without MLflow's client where the database is known
(`rrf.registry.listing`). What is shown of a champion is what the ledger proves. Of tags only the
number of episodes is taken, and only if the success of the ledger can be a share of it.
"""

import datetime
import logging
from collections.abc import Collection, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rrf.evaluation.intervals import wilson
from rrf.registry import approvals, listing, standing
from rrf.registry import ledger as ledgers
from rrf.registry.ledger import DamagedError, Ledger
from rrf.registry.versions import Version

_GAUGES = {
    "rrf_model_versions": "Versions of a model",
    "rrf_champion_version": "Number of the champion; 0 without one",
    "rrf_champion_success": "Success of the champion when it was evaluated",
    "rrf_champion_success_low": "Lower Wilson 95 % bound of it",
    "rrf_champion_success_high": "Upper Wilson 95 % bound of it",
    "rrf_champion_since_timestamp_seconds": "When the champion became it",
    "rrf_champion_flagged": "Whether the champion stands on tainted data or on what is revoked",
    "rrf_ledger_entries": "Entries of the ledger that are proved",
    "rrf_ledger_damaged": "Whether the ledger cannot be believed",
    "rrf_registry_problems": "What ledger, aliases and tags say against each other",
    "rrf_approvals_missing": "Approvals that the version @staging still needs",
}
_log = logging.getLogger("rrf.monitoring")


class Registry(Collector):
    """Models, champions and ledgers."""

    def __init__(self) -> None:
        self._is_away = False

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the store; if it cannot be read, say only that."""
        up = GaugeMetricFamily("rrf_registry_up", "Whether the store can be read")
        gauges = {
            name: GaugeMetricFamily(name, said, labels=["model"]) for name, said in _GAUGES.items()
        }
        try:
            flagged = _flagged()
            for model in listing.models():
                numbers = _numbers(model) | {"rrf_champion_flagged": model in flagged}
                for name, value in numbers.items():
                    gauges[name].add_metric([model], value)
        except OSError as error:
            if not self._is_away:
                _log.warning("there are no numbers of the registry: %s", error)
            self._is_away, gauges = True, {}
        else:
            self._is_away = False
        up.add_metric([], not self._is_away)
        yield up
        yield from gauges.values()


def _flagged() -> Collection[str]:
    """The models whose champions `rrf models list` flags."""
    try:
        return standing.flagged().keys()
    except ValueError as error:  # configs/tainted.yaml is damaged
        _log.warning("%s", error)
        return ()


def _numbers(model: str) -> dict[str, float]:
    problems, versions = listing.problems(model), listing.versions(model)
    try:
        ledger, damaged = ledgers.read(listing.connect(), model), False
        missing = approvals.missing(ledger)
    except DamagedError:
        ledger, damaged = Ledger(model, listing.proved_entries(model)), True
        missing = 0
    except ValueError as error:  # written by a newer rrf, or configs/trust.yaml is damaged
        _log.warning("%s", error)
        return {"rrf_registry_problems": len(problems) or 1, "rrf_ledger_damaged": 1}
    numbers = {
        "rrf_model_versions": len(versions),
        "rrf_champion_version": int(ledger.champion or 0),
        "rrf_ledger_entries": len(ledger.entries),
        "rrf_ledger_damaged": damaged,
        "rrf_registry_problems": len(problems),
        "rrf_approvals_missing": missing,
    }
    champion = next((v for v in versions if v.version == ledger.champion), None)
    if damaged or champion is None:
        return numbers
    return numbers | _success(ledger, champion) | _since(ledger)


def _success(ledger: Ledger, champion: Version) -> dict[str, float]:
    """Success and bounds of the evaluation that is shown with the champion, by the ledger."""
    shown = champion.tags.get("evaluation.digest")
    evaluation = next((e for e in ledger.evaluations(champion.version) if e.digest == shown), None)
    if evaluation is None:
        return {}
    numbers, text = {"rrf_champion_success": evaluation.success}, champion.tags
    episodes = int(text["evaluation.episodes"]) if _is_count(text) else 0
    solved = round(evaluation.success * episodes)
    if not episodes or round(solved / episodes, 6) != evaluation.success:
        return numbers
    low, high = wilson(solved, episodes)
    return numbers | {"rrf_champion_success_low": low, "rrf_champion_success_high": high}


def _is_count(tags: dict[str, str]) -> bool:
    text = tags.get("evaluation.episodes", "")
    return text.isascii() and text.isdigit() and len(text) < 10


def _since(ledger: Ledger) -> dict[str, float]:
    for entry in reversed(ledger.entries):
        if entry.action in ("promote", "rollback") and entry.champion == ledger.champion:
            since = datetime.datetime.fromisoformat(entry.time)
            return {"rrf_champion_since_timestamp_seconds": since.timestamp()}
    return {}
