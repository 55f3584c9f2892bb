"""The promotion ledger as people read it: a row for each change of champion, or a sentence."""

import datetime

from rrf.tracking.ledger import Entry

COLUMNS = ("#", "when (UTC)", "change", "champion", "before", "verdict", "by", "reason")
"""Of `row`. `champion` is the version that it was after the change, `before` the one before it;
`verdict` begins the digest of the gate's verdict, which stands whole in the tags of the version."""


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
    """What a change did to a version that it names, as a line."""
    moment = f"{when(entry)} UTC (change {entry.index} of the ledger)"
    reason = " ".join(entry.reason.split())
    if entry.action == "promote":
        return f"Promoted {moment}: {reason}"
    if entry.version == version:
        return f"Rolled back to version {entry.champion}, {moment}: {reason}"
    return f"Champion again, {moment}, as version {entry.version} was rolled back: {reason}"
