"""A key that somebody else has, from before anybody notices until its owner has another one."""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rrf.identity import keys, trust
from rrf.identity.trust import TrustedKeyCfg
from tests.faults.attacks import Attacked
from tests.faults.forgeries import acting, approve, prepare_signed, read_champion, signing
from tests.faults.registry_cases import champions
from tests.faults.work_cases import rrf
from tests.registry.conftest import NAME


class StolenKey(Attacked):
    """The thief changes the model before the key is revoked and afterwards, from a workspace of
    their own in which it still counts; two people and the owner's next key go on."""

    name = "key stolen, then revoked"

    def prepare(self, home: Path) -> None:
        prepare_signed(home, approvals=1)
        shutil.copytree(home / "keys", home / "thief/keys", ignore=lambda *_: ["bob.pem"])

    def play(self, home: Path, rng: random.Random) -> int:
        from rrf.mlflow_store import store
        from rrf.registry import changes, promotion, repair

        faults = 0
        with signing(home):
            with acting("bob"), contextlib.suppress(promotion.NotPromotedError):
                promotion.promote(NAME, "3")  # waits for somebody's approval
            true = promotion.ledger_of(NAME)
            for name in ("configs", "checkpoints"):
                shutil.copytree(home / name, home / "thief" / name)
            for _ in range(rng.randint(0, 2)):
                faults += _steal(home, rng)
            end = len(true.entries)
            with acting("bob"):
                words = ("--reason", "laptop stolen", "--until", f"{NAME}={end}")
                rrf("keys", "revoke", "alice", *words)
            for _ in range(2):
                assert read_champion() in (None, "2"), "a reader believes the thief"
                faults += _steal(home, rng)
                assert read_champion() in (None, "2"), "a reader believes a revoked key"
                with acting("bob"):
                    repair.repair(NAME, "entries by a stolen key")
            ledger = changes.agreed(store.connect(), NAME)
            assert ledger.entries[:end] == true.entries, "an honest entry is lost"
            assert {e.action for e in ledger.entries[end:]} <= {"repair"}, ledger.entries[end:]
            assert champions() == ["2"] == [read_champion()], champions()
            cfg = trust.load()
            again = TrustedKeyCfg(name="alice", public=keys.new("alice-again"))
            trust.save(cfg.replace(keys=[*cfg.keys, again]))
            with acting("alice-again"):
                with contextlib.suppress(promotion.NotPromotedError):
                    promotion.promote(NAME, "3")
                approve("carol", "3")
                promotion.promote(NAME, "3")
            assert champions() == ["3"] == [read_champion()], champions()
        return faults


@contextlib.contextmanager
def _thief(home: Path) -> Iterator[None]:
    """Be who has the key, in a workspace of their own on the same store."""
    with acting("alice", home / "thief/keys"):
        uri = f"sqlite:///{home}/.rrf/mlflow.db"
        os.environ |= {"RRF_HOME": str(home / "thief"), "MLFLOW_TRACKING_URI": uri}
        yield


def _steal(home: Path, rng: random.Random) -> int:
    """Change the model in the owner's name, in one way that goes through; returns how many did."""
    from rrf.registry import promotion

    def approve_and_promote() -> None:
        approve("alice", "3")
        promotion.promote(NAME, "3")

    ways: list[Callable[[], object]] = [
        approve_and_promote,
        lambda: promotion.rollback(NAME, "worse"),
        lambda: promotion.withdraw(NAME, "dangerous"),
        lambda: promotion.promote(NAME, "1", unrevoke="it is fine"),
        lambda: promotion.rule(NAME, home / "configs/gates/g.yaml", "another gate"),
    ]
    with _thief(home):
        for way in rng.sample(ways, len(ways)):
            before = _entries()
            with contextlib.suppress(ValueError):
                way()
            if _entries() != before:
                return 1
    return 0


def _entries() -> list[str]:
    from rrf.mlflow_store import store

    tags = store.connect().get_registered_model(NAME).tags
    return sorted(key for key in tags if key.startswith("ledger.0"))
