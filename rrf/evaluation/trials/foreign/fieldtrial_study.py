"""A study of fieldtrial 0.3: its folder, the `study.yaml` in it, or its `fieldtrial.db` (SQLite).

The design is the one in the database, which is what was locked or amended; the file beside it can
be edited. As fieldtrial's own export does, arms of a study that is still blinded are their codes.
The database is opened for reading only. It may come from anybody: it must have exactly the tables
and columns of a version that is known, and neither views nor triggers.
"""

import contextlib
import json
import sqlite3
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

from rrf.config import NOT_YAML, first_error, parse_yaml
from rrf.evaluation.trials.outcomes import Outcome, Table, check_fields, number

DATABASE, DESIGN = "fieldtrial.db", "study.yaml"
_MAGIC = b"SQLite format 3\0"
_VERSIONS = ("0001_baseline", "0002_idempotency")
_MOST_BYTES, _MOST_ROWS, _LONGEST_TEXT = 1 << 30, 100_000, 10_000_000
_USED = {
    "study": ("id", "name", "design_yaml", "status", "unblinded_at", "fieldtrial_version"),
    "arm": ("id", "key", "blind_code"),
    "condition": ("id", "key"),
    "schedule_slot": ("id", "replicate", "condition_id", "arm_id"),
    "session": ("id", "operator", "rig"),
    "trial": (
        *("id", "slot_id", "session_id", "status", "started_at", "duration_s", "stage_index"),
        *("success", "termination", "failure_tags", "notes", "invalid_reason"),
    ),
    "event": ("id", "ts", "kind"),
}
"""Table -> the columns that are read."""
_HARMLESS = {
    "study": ("title", "design_hash", "created_at", "locked_at", "closed_at"),
    "arm": ("study_id", "label", "runner", "policy_ref", "serving", "policy_fingerprint"),
    "condition": ("study_id", "factors", "position"),
    "schedule_slot": ("study_id", "seq", "block", "position", "origin", "status"),
    "session": (
        *("study_id", "started_at", "ended_at", "rig_check", "environment", "software", "notes"),
    ),
    "trial": ("study_id", "attempt", "ended_at", "media", "auto_labels", "version"),
    "event": ("study_id", "actor", "payload", "idempotency_key"),
}
"""Table -> the columns that do not matter here."""
_ANY: dict = {}
_STOPPING = dict.fromkeys(("rule", "looks", "spending", "at", "min_blocks"), _ANY)
_ANALYSIS = {
    "primary": {
        "metric": _ANY, "comparison": {"treatment": _ANY, "control": _ANY}, "threshold": _ANY,
        "alternative": _ANY, "alpha": _ANY,
    },
    "interval": _ANY, "multiplicity": _ANY, "secondary": _ANY, "stopping": _STOPPING,
    "ladder": _ANY, "selection": _ANY, "proxy": _ANY,
}  # fmt: skip
_DESIGN = {
    "fieldtrial": _ANY, "name": _ANY, "title": _ANY,
    "task": {"instruction": _ANY, "description": _ANY},
    "rubric": dict.fromkeys(
        ("stages", "success", "failure_tags", "calibration_media", "rig_checklist"), _ANY
    ),
    "limits": {"timeout_s": _ANY, "no_progress_s": _ANY, "reset": _ANY},
    "arms": _ANY, "conditions": {"factors": _ANY, "replicates": _ANY},
    "design": dict.fromkeys(("type", "order", "blinding", "seed", "rounds"), _ANY),
    "analysis": _ANALYSIS, "runners": _ANY, "capture": _ANY,
}  # fmt: skip
"""The keys of study.yaml; `_ANY`: whatever is below does not matter here, or is checked by hand."""
_HARMLESS_KEYS = ("title", "task", "limits", "runners", "capture")
_READ_TYPES = ("randomized_block", "single_arm")


def is_study(path: Path) -> bool:
    """Whether a path is a study, its design or its database."""
    if path.is_dir() or path.name == DESIGN:
        return True
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read(path: Path) -> Table:
    """The trials of a study that are finished, in the order in which they were begun.

    Raises:
        ValueError: If it is no study, of another version, or contradicts itself; it says how.
    """
    folder = path if path.is_dir() else path.parent
    file = folder / DATABASE if path.is_dir() or path.name == DESIGN else path
    if not file.is_file():
        raise ValueError(
            f"{folder} has no {DATABASE}, so nothing was played there yet: fieldtrial lock {folder}"
        )
    with _opened(file) as database:
        ignored = _check_schema(database, file)
        rows = {table: _rows(database, file, table) for table in _USED}
    [study, *others] = rows["study"].values() or [{}]
    if others or not study:
        raise ValueError(f"{file} has {len(rows['study'])} studies, allowed: 1")
    design = _design(_text(study, "design_yaml", file), f"{file}: {DESIGN}")
    is_blinded = design["design"].get("blinding") == "operator" and not study["unblinded_at"]
    stages = _stages(design, file)
    by_time = sorted(rows["trial"].values(), key=lambda t: (str(t["started_at"]), str(t["id"])))
    outcomes, counted = [], set()
    for trial in by_time:
        if trial["status"] == "running":
            continue
        where = f"{file}: trial {trial['id']}"
        slot = _found(rows, "schedule_slot", trial, "slot_id", where)
        if trial["status"] == "completed" and slot["id"] in counted:
            raise ValueError(f"{where}: another trial of its slot counts already")
        if trial["status"] == "completed":
            counted.add(slot["id"])
        outcomes.append(_outcome(rows, trial, slot, stages, is_blinded, where))
    if not outcomes:
        raise ValueError(f"{file} has no trials that are finished")
    name, version = _text(study, "name", file), _text(study, "fieldtrial_version", file)
    notes = [*_planned(design), *_happened(rows, study, is_blinded, folder / DESIGN)]
    return Table(
        f"fieldtrial {version} (study {name})",
        tuple(outcomes),
        (*ignored, *(f"{DESIGN}: {key}" for key in _HARMLESS_KEYS if key in design)),
        tuple(notes),
    )


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    if (size := file.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{file} has {size} bytes, allowed: {_MOST_BYTES}")
    uri = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            database.row_factory = sqlite3.Row
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
            database.execute("PRAGMA trusted_schema = OFF")
            yield database
    except sqlite3.Error as error:
        raise ValueError(
            f"{file} cannot be read as the database of a study ({error}); copy the whole folder of "
            "the study, while nobody plays, to one that you may write to"
        ) from error


def _check_schema(database: sqlite3.Connection, file: Path) -> tuple[str, ...]:
    """The columns that do not matter. Raises ValueError for a schema of another version."""
    entries = "SELECT type, name, sql FROM sqlite_master"
    tables = set()
    for kind, name, sql in database.execute(f"{entries} LIMIT {_MOST_ROWS}"):
        is_table = kind == "table" and str(sql).upper().startswith("CREATE TABLE")
        if is_table and name in (*_USED, "alembic_version"):
            tables.add(name)
        elif kind != "index":
            what = kind if is_table or kind != "table" else "virtual table"
            raise ValueError(f"{file} has a {what} '{name:.60}', which fieldtrial 0.3 has not")
    if missing := sorted({*_USED, "alembic_version"} - tables):
        raise ValueError(f"{file} is no study of fieldtrial 0.3: it has no table '{missing[0]}'")
    versions = [row[0] for row in database.execute("SELECT * FROM alembic_version LIMIT 2")]
    if len(versions) != 1 or versions[0] not in _VERSIONS:
        raise ValueError(
            f"{file} has schema {', '.join(map(repr, versions)) or 'none'}, known are "
            f"{', '.join(_VERSIONS)}; export it with its fieldtrial: fieldtrial export"
        )
    ignored = []
    for table, used in _USED.items():
        columns = [row[1] for row in database.execute(f"PRAGMA table_xinfo({table})")]
        where = f"{file}: table {table}"
        harmless = check_fields(columns, used, _HARMLESS[table], where)
        ignored += [f"{table}.{column}" for column in harmless if column != "study_id"]
        if lacking := [column for column in used if column not in columns]:
            raise ValueError(f"{where} has no column '{lacking[0]}'")
    return tuple(ignored)


def _rows(database: sqlite3.Connection, file: Path, table: str) -> dict[typing.Any, dict]:
    """Id -> row, of the columns that are read."""
    columns = ", ".join(f'"{column}"' for column in _USED[table])
    found = database.execute(f"SELECT {columns} FROM {table} LIMIT {_MOST_ROWS + 1}").fetchall()
    if len(found) > _MOST_ROWS:
        raise ValueError(f"{file}: table {table} has more than {_MOST_ROWS} rows")
    rows = {row["id"]: dict(row) for row in found}
    if len(rows) < len(found):
        raise ValueError(f"{file}: table {table} has one id twice")
    return rows


def _found(rows: Mapping, table: str, row: Mapping, column: str, where: str) -> dict:
    try:
        return rows[table][row[column]]
    except KeyError:
        raise ValueError(f"{where}: its {column} {row[column]!r:.60} is not there") from None


def _text(row: Mapping, column: str, where: typing.Any) -> str:
    value = row[column]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where}: {column} is {value!r:.60}, not text")
    return value


def _design(text: str, where: str) -> dict:
    """What study.yaml says. Raises ValueError for an unknown key and another version."""
    try:
        design = parse_yaml(text)
    except NOT_YAML as error:
        raise ValueError(f"{where} is not YAML: {first_error(error)}".split("\n")[0]) from error
    _check_keys(design, _DESIGN, where, "")
    if design.get("fieldtrial") != 1:
        raise ValueError(f"{where}: fieldtrial is {design.get('fieldtrial')!r:.60}, allowed: 1")
    for key in ("rubric", "design", "analysis"):
        if not isinstance(design.get(key), dict):
            raise ValueError(f"{where} has no '{key}'")
    if (kind := design["design"].get("type")) not in _READ_TYPES:
        raise ValueError(
            f"{where}: design.type is {kind!r:.60}, whose trials depend on each other, or which "
            f"nobody here knows; read are {', '.join(_READ_TYPES)}"
        )
    return design


def _check_keys(data: typing.Any, known: Mapping, where: str, path: str) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: {path or 'the file'} is {data!r:.60}, not a mapping")
    for key, value in data.items():
        full = f"{path}.{key}" if path else str(key)
        if key not in known:
            raise ValueError(
                f"{where}: nobody here knows what {full!r:.80} means; known are: {', '.join(known)}"
            )
        if known[key] and value is not None:
            _check_keys(value, known[key], where, full)


def _stages(design: dict, file: Path) -> tuple[list[str], int]:
    """The names of the stages, and the index of the one from which on a trial is solved."""
    rubric = design["rubric"]
    try:
        names = [str(stage["id"]) for stage in rubric["stages"]]
        return names, names.index(str(rubric["success"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file}: {DESIGN}: rubric needs stages with ids, one of which is its success ({error})"
        ) from error


def _outcome(
    rows: Mapping,
    trial: Mapping,
    slot: Mapping,
    stages: tuple[list[str], int],
    is_blinded: bool,
    where: str,
) -> Outcome:
    condition = _found(rows, "condition", slot, "condition_id", where)
    arm = _found(rows, "arm", slot, "arm_id", where)
    session = _found(rows, "session", trial, "session_id", where)
    if trial["status"] not in ("completed", "invalid"):
        raise ValueError(f"{where}: status is {trial['status']!r:.60}, not completed or invalid")
    is_invalid, stage, (names, solved_from) = trial["status"] == "invalid", "", stages
    index, success = trial["stage_index"], trial["success"]
    if not is_invalid or index is not None:
        if type(index) is not int or not -1 <= index < len(names):
            raise ValueError(
                f"{where}: stage_index is {index!r:.60}, allowed: -1 to {len(names) - 1}"
            )
        stage = names[index] if index >= 0 else ""
        if success not in (0, 1) or bool(success) != (index >= solved_from):
            raise ValueError(
                f"{where}: success is {success!r:.60}, but its stage is '{stage}', and solved is "
                f"'{names[solved_from]}'"
            )
    try:
        tags = json.loads(_text(trial, "failure_tags", where) or "[]")
        if not isinstance(tags, list):
            raise ValueError("no list")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: failure_tags is no JSON list ({error})") from error
    key = _text(condition, "key", where)
    invalid = _text(trial, "invalid_reason", where) or "it is marked as invalid"
    return Outcome(
        arm=_text(arm, "blind_code" if is_blinded else "key", where),
        condition=key,
        success=bool(success) and not is_invalid,
        scenario=f"{key}/{slot['replicate']}",
        invalid=invalid if is_invalid else "",
        stage=stage,
        duration_s=number(trial["duration_s"], f"{where}: duration_s", least=0),
        termination=_text(trial, "termination", where),
        tags=tuple(map(str, tags)),
        operator=_text(session, "operator", where),
        rig=_text(session, "rig", where),
        session=_text(session, "id", where),
        notes=_text(trial, "notes", where),
    )


def _planned(design: dict) -> Iterator[str]:
    """What the analysis was to be, and why the numbers here may be other ones."""
    analysis = design["analysis"]
    primary = analysis.get("primary") or {}
    asked = f"{primary.get('alternative', 'two-sided')}, alpha {primary.get('alpha', 0.05)}"
    if compared := primary.get("comparison"):
        yield f"planned: {compared.get('treatment')} against {compared.get('control')}, {asked}"
    if (threshold := primary.get("threshold")) is not None:
        yield f"planned: a success rate compared with {threshold}, {asked}"
    rule = (analysis.get("stopping") or {}).get("rule", "fixed")
    if early := rule if rule != "fixed" else "selection" if analysis.get("selection") else "":
        yield (
            f"planned: {early}. The bounds and p-values below are those of trials of a fixed "
            "number, so they are too narrow for it; the plan's own are by `fieldtrial analyze`"
        )
    if others := [key for key in ("ladder", "proxy") if analysis.get(key)]:
        yield f"planned: {', '.join(others)}, which only `fieldtrial analyze` computes"
    arms = design.get("arms")
    if isinstance(arms, list) and len(arms) > 2:
        method = analysis.get("multiplicity", "holm")
        yield f"planned: p-values adjusted by {method}; those below are not adjusted"
    if (interval := analysis.get("interval", "wilson")) != "wilson":
        yield f"planned: {interval} intervals; those below are Wilson's"


def _happened(rows: Mapping, study: Mapping, is_blinded: bool, file: Path) -> Iterator[str]:
    """What readers should know about how the study was played."""
    if study["status"] != "closed":
        yield f"the study is {study['status']}, not closed"
    if is_blinded:
        yield "the arms are blinded, so they are named by their codes"
    events = rows["event"].values()
    if count := sum(event["kind"] == "amendment" for event in events):
        yield f"the plan was amended {count} times"
    opened = str(study["unblinded_at"] or "~")  # after every time
    late = [e for e in events if e["kind"] == "trial_edited" and str(e["ts"]) > opened]
    if late:
        yield f"{len(late)} answers were changed after the arms were unblinded"
    if count := sum(trial["status"] == "running" for trial in rows["trial"].values()):
        yield f"{count} trials are running, and left out"
    if file.is_file() and file.read_text(encoding="utf-8", errors="replace").split() != (
        str(study["design_yaml"]).split()
    ):
        yield f"{file} is another one than what was locked, which counts"
