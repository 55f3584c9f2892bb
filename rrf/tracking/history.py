"""The promotion ledger as text for people: a table row or a sentence per change of champion."""

import datetime

from rrf.tracking.ledger import Entry

COLUMNS = ("#", "when (UTC)", "change", "champion", "before", "verdict", "by", "reason")
"""Columns of `row`. `champion` is the champion after the change, `before` the one it replaced.
`verdict` is the beginning of the verdict's digest; the version's tags hold the whole verdict."""


def row(entry: Entry) -> tuple[str, ...]:
    """A change of the ledger as the cells of a table."""
    before = {"promote": entry.previous, "rollback": entry.version}.get(entry.action)
    return (
        str(entry.index),
        when(entry),
        change(entry),
        entry.champion or "-",
        before or "-",
        (entry.verdict_digest or "-")[:8],
        entry.actor,
        entry.reason,
    )


def change(entry: Entry) -> str:
    """What an entry changed, in a few words."""
    if entry.action == "gate" and entry.gate:
        return f"ruled by gate {entry.gate['file']}"
    if entry.action == "repair":
        return f"ledger repaired, {len(entry.lost or ())} entries lost"
    done = {"promote": "promoted", "rollback": "rolled back", "unrevoke": "allowed again"}
    return f"version {entry.version} {done[entry.action]}"


def when(entry: Entry) -> str:
    """The time of a change to the minute, in UTC."""
    moment = datetime.datetime.fromisoformat(entry.time).astimezone(datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M}"


def told(entry: Entry, version: str) -> str:
    """One line that says what a change of champion did to `version`."""
    moment = f"{when(entry)} UTC (change {entry.index} of the ledger)"
    reason = " ".join(entry.reason.split())
    if entry.action == "unrevoke":
        return f"Allowed again {moment}: {reason}"
    if entry.action == "promote":
        return f"Promoted {moment}: {reason}"
    if entry.version == version:
        return f"Rolled back to version {entry.champion}, {moment}: {reason}"
    return f"Champion again, {moment}, as version {entry.version} was rolled back: {reason}"
