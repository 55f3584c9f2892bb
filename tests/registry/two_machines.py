"""What one of two machines does to a model that both share: promote, roll back, allow again.

    python -m tests.registry.two_machines NAME [--kill WRITE] VERSION...

For each version: promote it, and roll the champion back. A refusal is part of the game. Prints the
hashes of the ledger entries that it was told were written.
"""

import contextlib
import json
import sys

from rrf.registry import promotion
from tests.registry.processes import arm


def main(name: str, *words: str) -> None:
    if words[0] == "--kill":
        arm(int(words[1]))
        words = words[2:]
    written: list[str] = []
    for version in words:
        before = {entry.hash for entry in promotion.ledger_of(name).entries}
        try:
            entry = promotion.promote(name, version, unrevoke="tried again")
            written += [entry.hash] if entry.hash not in before else []
        except promotion.NotPromotedError:
            pass
        written += [
            e.hash for e in promotion.ledger_of(name).entries if is_mine(e, version, written)
        ]
        with contextlib.suppress(ValueError):
            written.append(promotion.rollback(name, f"by the machine of {version}", version).hash)
    sys.stdout.write(json.dumps({"written": sorted(set(written))}))


def is_mine(entry, version: str, written: list[str]) -> bool:
    """Whether this machine has allowed the version again: only it does so for its versions."""
    return entry.action == "unrevoke" and entry.version == version and entry.hash not in written


if __name__ == "__main__":
    main(*sys.argv[1:])
