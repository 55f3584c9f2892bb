"""Records of robostats 0.2: JSON lines as its recorder writes them, and CSV and JSON with the same
field names.

`scenario_id` pairs policies, `success_detail` is a partial score in a unit of its own. Protocols
are compared, not interpreted. `episode_idx` and `run_id` are kept.
"""

import csv
import io
import json
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.evaluation.trials.outcomes import Outcome, Table, check_fields, number

SCHEMA = 2
_KNOWN = (
    *("policy_id", "task_id", "success", "scenario_id", "protocol", "seed", "episode_idx"),
    *("success_detail", "run_id", "schema_version"),
)
_HARMLESS = ("scenario_spec", "source")
_TRUE, _FALSE = ("true", "1", "True"), ("false", "0", "False")


def read(path: Path, arm: str) -> Table:
    """See `rrf.evaluation.trials.foreign.Exchange`. The file's name says which form it has."""
    readers = {".jsonl": _lines, ".csv": _cells, ".json": _document}
    if path.suffix not in readers:
        raise ValueError(f"{path}: records are .jsonl, .csv or .json, not '{path.suffix}'")
    outcomes, ignored = [], dict[str, None]()
    for where, row in readers[path.suffix](path):
        ignored |= dict.fromkeys(check_fields(list(row), _KNOWN, _HARMLESS, where))
        outcomes.append(_outcome(row, where))
    if not outcomes:
        raise ValueError(f"{path} holds no records")
    return Table(f"robostats 0.2 (records, schema {SCHEMA})", tuple(outcomes), tuple(ignored))


def _lines(path: Path) -> typing.Iterator[tuple[str, Mapping]]:
    for number_, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            yield _object(line, f"{path}, line {number_}")


def _object(text: str, where: str) -> tuple[str, Mapping]:
    try:
        row = atomic.parse_json(text)
    except ValueError as error:
        raise ValueError(
            f"{where} is no JSON object ({error}); a cut-off line? remove it"
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no JSON object")
    return where, row


def _cells(path: Path) -> typing.Iterator[tuple[str, Mapping]]:
    text = path.read_text(encoding="utf-8-sig")
    for line, row in enumerate(csv.DictReader(io.StringIO(text, newline=""), restkey=""), start=2):
        where = f"{path}, line {line}"
        if "" in row or None in row.values():
            raise ValueError(
                f"{where} has {'more' if '' in row else 'fewer'} cells than the header"
            )
        success = row.get("success")
        if success not in (*_TRUE, *_FALSE):
            raise ValueError(f"{where}: success is {success!r}, allowed: true or false")
        given = {name: value for name, value in row.items() if value != ""}
        yield where, {**given, "success": success in _TRUE}


def _document(path: Path) -> typing.Iterator[tuple[str, Mapping]]:
    """A list of records, or `episodes` with what all of them have in common beside it."""
    again = "export it again"
    content = atomic.read_json(path, f"there is no file {path}", again)
    common: Mapping = {}
    if isinstance(content, dict):
        common = {key: value for key, value in content.items() if key != "episodes"}
        content = content.get("episodes")
    if not isinstance(content, list):
        raise ValueError(f"{path} is neither a list of records nor an object with 'episodes'")
    for number_, row in enumerate(content):
        where = f"{path}, record {number_}"
        if not isinstance(row, dict):
            raise ValueError(f"{where} is no object")
        if both := common.keys() & row.keys():
            raise ValueError(f"{where} has {', '.join(sorted(both))}, and so has the file itself")
        yield where, {**common, **row}


def _outcome(row: Mapping, where: str) -> Outcome:
    version = row.get("schema_version", SCHEMA)
    if str(version) != str(SCHEMA):
        raise ValueError(
            f"{where} has schema_version {version!r}, known is {SCHEMA} (robostats 0.2); write it "
            "with that version"
        )
    for name in ("policy_id", "task_id"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise ValueError(f"{where}: {name} is {row.get(name)!r:.60}, expected a text")
    if type(row.get("success")) is not bool:
        raise ValueError(f"{where}: success is {row.get('success')!r:.60}, allowed: true or false")
    numbers = {name: number(row.get(name), f"{where}: {name}") for name in ("seed", "episode_idx")}
    for name, value in numbers.items():
        if value is not None and value != int(value):
            raise ValueError(f"{where}: {name} is {value:g}, expected a whole number")
    scenario, seed, place = row.get("scenario_id"), numbers["seed"], numbers["episode_idx"]
    extra = {"protocol": row.get("protocol"), "run_id": row.get("run_id")}
    return Outcome(
        arm=row["policy_id"],
        condition=row["task_id"],
        success=row["success"],
        scenario="" if scenario is None else f"{row['task_id']}/{scenario}",
        progress=number(row.get("success_detail"), f"{where}: success_detail"),
        seed=None if seed is None else int(seed),
        extra=extra
        | {"scenario_id": scenario, "episode_idx": None if place is None else int(place)},
    )


def write(table: Table, path: Path, arm: str) -> None:
    """See `rrf.evaluation.trials.foreign.Exchange`: JSON lines. Invalid trials have no place in the
    format.

    Raises:
        ValueError: If there are invalid trials, which the format cannot say.
    """
    if any(outcome.invalid for outcome in table.outcomes):
        count = sum(bool(outcome.invalid) for outcome in table.outcomes)
        raise ValueError(
            f"robostats has no invalid trials, and {count} are; export fieldtrial's format, or "
            "leave them out on purpose: --valid-only"
        )
    lines = []
    for outcome in table.outcomes:
        if arm and outcome.arm != arm:
            continue
        scenario = outcome.extra.get("scenario_id") or outcome.scenario or None
        row = {
            "schema_version": SCHEMA,
            "policy_id": outcome.arm,
            "task_id": outcome.condition,
            "success": outcome.success,
            "scenario_id": scenario,
            "protocol": outcome.extra.get("protocol"),
            "seed": outcome.seed,
            "episode_idx": outcome.extra.get("episode_idx"),
            "success_detail": outcome.progress,
            "run_id": outcome.extra.get("run_id") or outcome.session or None,
        }
        lines.append(json.dumps(row, sort_keys=True) + "\n")
    atomic.write_text(path, "".join(lines))
