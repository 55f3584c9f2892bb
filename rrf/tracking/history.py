"""The promotion ledger as text for people: a table row or a sentence per change of champion."""

import datetime

from rrf.tracking.ledger import Entry

COLUMNS = ("#", "when (UTC)", "change", "champion", "before", "verdict", "by", "reason")
"""Columns of `row`. `champion` is the champion after the change, `before` the one before it.
`verdict` is the beginning of the verdict's digest; the version's tags hold the whole verdict."""


def row(entry: Entry) -> tuple[str, ...]:
    """A change of champion as the cells of a table."""
    is_promotion = entry.action == "promote"
    return (
        str(entry.index),
        when(entry),
        f"version {entry.version} {'promoted' if is_promotion else 'rolled back'}",
        entry.champion,
        (entry.previous if is_promotion else entry.version) or "-",
        (entry.verdict_digest or "-")[:8],
        entry.actor,
        entry.reason,
    )


def when(entry: Entry) -> str:
    """The time of a change to the minute, in UTC."""
    moment = datetime.datetime.fromisoformat(entry.time).astimezone(datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M}"


def told(entry: Entry, version: str) -> str:
    """One line that says what a change of champion did to `version`."""
    moment = f"{when(entry)} UTC (change {entry.index} of the ledger)"
    reason = " ".join(entry.reason.split())
    if entry.action == "promote":
        return f"Promoted {moment}: {reason}"
    if entry.version == version:
        return f"Rolled back to version {entry.champion}, {moment}: {reason}"
    return f"Champion again, {moment}, as version {entry.version} was rolled back: {reason}"
