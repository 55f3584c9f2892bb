"""What one of two machines does to a model that both share: promote, roll back, allow again.

    python -m tests.tracking.two_machines NAME [--kill WRITE] VERSION...

For each version: promote it, and roll the champion back. A refusal is part of the game. Prints the
hashes of the ledger entries that it was told were written.
"""

import contextlib
import json
import sys

from rrf.tracking import registry
from tests.tracking.processes import arm


def main(name: str, *words: str) -> None:
    if words[0] == "--kill":
        arm(int(words[1]))
        words = words[2:]
    written: list[str] = []
    for version in words:
        before = {entry.hash for entry in registry.ledger(name)}
        try:
            entry = registry.promote(name, version, unrevoke="tried again")
            written += [entry.hash] if entry.hash not in before else []
        except registry.NotPromotedError:
            pass
        written += [e.hash for e in registry.ledger(name) if is_mine(e, version, written)]
        with contextlib.suppress(ValueError):
            written.append(registry.rollback(name, f"by the machine of {version}", version).hash)
    sys.stdout.write(json.dumps({"written": sorted(set(written))}))


def is_mine(entry, version: str, written: list[str]) -> bool:
    """Whether this machine has allowed the version again: only it does so for its versions."""
    return entry.action == "unrevoke" and entry.version == version and entry.hash not in written


if __name__ == "__main__":
    main(*sys.argv[1:])
