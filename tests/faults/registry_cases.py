"""A registry on SQLite whose promotion, rollback and registration are killed."""

import json
import typing
from pathlib import Path

from rrf.mlflow_store import store
from rrf.registry import promotion
from rrf.registry.lineage_sources import collect_lineage
from tests.faults.kills import Killed
from tests.registry import conftest as registry
from tests.registry import processes

NAME = processes.NAME


def prepare_registry(home: Path, seeds: typing.Iterable[int]) -> None:
    """A workspace whose model has a version for each of `seeds`; checkpoint 9 is not in it yet."""
    registry.new_repository(home)
    client = store.connect()
    run_id = registry.new_run(client)
    (home / "run_id").write_text(run_id)
    (home / "lineage.json").write_text(json.dumps(collect_lineage("demo").to_dict()))
    for seed in seeds:
        registry.register(home, NAME, run_id, seed, 18)
    checkpoint = registry.make_checkpoint(home / "checkpoints/9", 9)
    registry.make_evaluation(home / "checkpoints/evaluation-9", checkpoint, 18)


def champions() -> list[str]:
    """The versions that a reader takes for the champion."""
    from rrf.registry import listing

    return [v.version for v in listing.versions(NAME) if "champion" in v.aliases]


class Promotion(Killed):
    """One of three versions becomes the champion."""

    name = "promotion"

    def prepare(self, home: Path) -> None:
        prepare_registry(home, (1, 2, 3))
        promotion.promote(NAME, "1")

    def work(self, home: Path) -> None:
        processes.promote()

    def look(self, home: Path) -> None:
        from rrf.registry import listing

        assert {v.version for v in listing.versions(NAME)} >= {"1", "2", "3"}, "a version is lost"
        assert len(champions()) == 1, f"champions: {champions()}"

    def state(self, home: Path) -> typing.Any:
        return processes.end_state()


class Rollback(Promotion):
    """The champion before it becomes the champion."""

    name = "rollback"

    def prepare(self, home: Path) -> None:
        prepare_registry(home, (1, 2, 3))
        promotion.promote(NAME, "2")
        promotion.promote(NAME, "1")

    def work(self, home: Path) -> None:
        processes.rollback()


class Registration(Promotion):
    """A checkpoint becomes a version."""

    name = "registration"

    def work(self, home: Path) -> None:
        processes.register()
