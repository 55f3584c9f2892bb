"""Faults that are no kills: what is done to messages, files, keys and clocks, and what must hold.

A case plays itself: it does honest work, in between what its seed draws, and says with an
AssertionError what is wrong. It runs in a fork, in a fresh copy of what `prepare` has made.
"""

import abc
import random
import sys
from pathlib import Path

from tests.faults.kills import Harmed, Survival, Trial, import_all


class Attacked(Harmed):
    """Honest work, and what is done against it."""

    def trial(self, folder: Path) -> "AttackTrial":
        return AttackTrial(self, folder)

    @abc.abstractmethod
    def play(self, home: Path, rng: random.Random) -> int:
        """Do both, and look; returns how many faults there were."""


class AttackTrial(Trial):
    """An attacked case in a folder."""

    def __init__(self, case: Attacked, folder: Path):
        self.case = case
        super().__init__(case, folder)

    def _undisturbed_s(self) -> float:
        """Import what it needs; without an attack there is nothing to measure."""
        rng = random.Random(f"{self.name} first")
        self._again()
        import_all(self._in_fork(lambda: (self.case.play(self.home, rng), [*sys.modules])[1]))
        return 0.0

    def _harm(self, rng: random.Random, survival: Survival) -> None:
        self._again()
        survival.kills = self._in_fork(lambda: self.case.play(self.home, rng))
