"""Trials of fieldtrial 0.3: a study (`fieldtrial_study.py`), and its CSV files: what `fieldtrial
export` writes, and what `fieldtrial import` reads.

The CSV files name no version, so their columns are the version: an unknown one is refused. A study
that is blinded exports letters as arms; they are read as they stand. What is written is the form of
import, with the columns that fieldtrial's documentation lists.
"""

import csv
import io
from pathlib import Path

from rrf import atomic
from rrf.evaluation.trials.foreign import fieldtrial_study
from rrf.evaluation.trials.outcomes import Outcome, Table, check_fields, number

IMPORT = (
    *("condition", "arm", "success", "stage", "duration_s", "termination", "failure_tags"),
    *("operator", "rig", "session", "status", "invalid_reason", "notes"),
)
_OF_EXPORT = ("session_id", "stage_index", "replicate")
_HARMLESS = ("trial_id", "seq", "block", "attempt", "started_at", "origin")
_TRUE = ("1", "true", "yes", "y", "t", "success", "ok")
_FALSE = ("0", "false", "no", "n", "f", "fail", "failure")
_STATUSES = ("completed", "invalid")


def read(path: Path, arm: str) -> Table:
    """See `rrf.evaluation.trials.foreign.Exchange`."""
    if fieldtrial_study.is_study(path):
        return fieldtrial_study.read(path)
    text = path.read_text(encoding="utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="")
    header = list(reader.fieldnames or [])
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(f"{path}: the column {', '.join(map(repr, twice))} is there twice")
    ignored = check_fields(header, (*IMPORT, *_OF_EXPORT), _HARMLESS, str(path))
    for needed in ("condition", "arm", "success"):
        if needed not in header:
            raise ValueError(
                f"{path} has no column '{needed}'"
                + (
                    "; give one, because stages are named by study.yaml; or import the folder "
                    "of the study"
                    if needed == "success"
                    else ""
                )
            )
    outcomes = []
    for line, row in enumerate(reader, start=2):
        where = f"{path}, line {line}"
        if "" in row or None in row.values():
            raise ValueError(
                f"{where} has {'more' if '' in row else 'fewer'} cells than the header"
            )
        outcomes.append(_outcome({k: v.strip() for k, v in row.items()}, where))
    if not outcomes:
        raise ValueError(f"{path} holds no trials")
    return Table("fieldtrial 0.3 (CSV)", tuple(outcomes), ignored)


def _outcome(row: dict[str, str], where: str) -> Outcome:
    status = row.get("status", "").lower() or "completed"
    if status not in _STATUSES:
        raise ValueError(f"{where}: status is {status!r}, allowed: {', '.join(_STATUSES)}")
    is_invalid, said = status == "invalid", row["success"].lower()
    if said not in (*_TRUE, *_FALSE) and not (is_invalid and not said):
        raise ValueError(f"{where}: success is {row['success']!r}, allowed: true or false")
    for name in ("condition", "arm"):
        if not row[name]:
            raise ValueError(f"{where}: {name} is empty")
    invalid = (row.get("invalid_reason") or "imported as invalid") if is_invalid else ""
    replicate = row.get("replicate", "")
    return Outcome(
        arm=row["arm"],
        condition=row["condition"],
        success=said in _TRUE and not is_invalid,
        scenario=f"{row['condition']}/{replicate}" if replicate else "",
        invalid=invalid,
        stage=row.get("stage", "") or row.get("stage_index", ""),
        duration_s=number(row.get("duration_s"), f"{where}: duration_s", least=0),
        termination=row.get("termination", ""),
        tags=tuple(tag.strip() for tag in row.get("failure_tags", "").split(";") if tag.strip()),
        operator=row.get("operator", ""),
        rig=row.get("rig", ""),
        session=row.get("session", "") or row.get("session_id", ""),
        notes=row.get("notes", ""),
    )


def write(table: Table, path: Path, arm: str) -> None:
    """See `rrf.evaluation.trials.foreign.Exchange`. Terminations of ours that fieldtrial does not
    know go into the notes.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, IMPORT, lineterminator="\n")
    writer.writeheader()
    for outcome in table.outcomes:
        if arm and outcome.arm != arm:
            continue
        writer.writerow(
            {
                "condition": outcome.condition,
                "arm": outcome.arm,
                "success": str(outcome.success).lower(),
                "stage": outcome.stage,
                "duration_s": "" if outcome.duration_s is None else repr(outcome.duration_s),
                "termination": outcome.termination,
                "failure_tags": ";".join(outcome.tags),
                "operator": outcome.operator,
                "rig": outcome.rig,
                "session": outcome.session,
                "status": "invalid" if outcome.invalid else "completed",
                "invalid_reason": outcome.invalid,
                "notes": outcome.notes,
            }
        )
    atomic.write_text(path, text.getvalue())
