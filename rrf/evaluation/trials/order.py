"""In which order the trials of a study are played, and which letter stands for which arm.

Both follow from a secret that is drawn when the study is planned and whose SHA-256 is a part of the
plan, so nobody can draw again. In each block the conditions come in a random order, and in each
condition the arms do, one after the other: what changes during a day (light, wear, the operator)
changes for all of them. The letters are drawn anew for every condition of every block, so a letter
says nothing about the other trials.
"""

import dataclasses
import hashlib
import secrets
from collections.abc import Iterable, Sequence

LETTERS = "ABCDEFGH"


@dataclasses.dataclass(frozen=True)
class Slot:
    """A trial that is to be played."""

    number: int
    """From 1, over the whole study."""
    block: int
    condition: str
    arm: str
    code: str
    """The letter that the operator sees."""


def new_secret() -> str:
    """64 hexadecimal digits."""
    return secrets.token_hex(32)


def commitment(secret: str) -> str:
    """What the plan says of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def slots(secret: str, block: int, conditions: Sequence[str], arms: Sequence[str]) -> list[Slot]:
    """The trials of a block, in order."""
    found, number = [], block * len(conditions) * len(arms)
    for condition in _drawn(secret, conditions, block):
        letters = dict(zip(_drawn(secret, arms, block, condition, "code"), LETTERS, strict=False))
        for arm in _drawn(secret, arms, block, condition, "order"):
            number += 1
            found.append(Slot(number, block, condition, arm, letters[arm]))
    return found


def _drawn(secret: str, names: Iterable[str], *where: object) -> list[str]:
    """The names in an order that is as good as random to who does not know the secret."""

    def place(name: str) -> str:
        return hashlib.sha256("\n".join(map(str, (secret, *where, name))).encode()).hexdigest()

    return sorted(names, key=place)
