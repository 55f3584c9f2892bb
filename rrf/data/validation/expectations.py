"""Great Expectations suites, generated from a dataset's schema and run on its two tables.

An expectation is plain data here; Great Expectations is imported when a suite runs (10 s). Three of
its habits are dealt with: results come in any order (matched by the position kept in `meta`), range
checks pass over NaN (each has a not-null check beside it), and an expectation that crashed looks
like failed data (told apart by its exception).
"""

import dataclasses
import itertools
import typing
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.schema import ACTION, IMAGE_PREFIX, INDEX_KEYS, SCALARS, STATE, Schema
from rrf.data.validation.checks import MAX_FINDINGS, CheckResult, Finding, result
from rrf.data.validation.tables import TIME_STEP, dimension_columns

if typing.TYPE_CHECKING:
    from great_expectations.data_context import AbstractDataContext

FRAME_KEYS = ("episode_index", "frame_index")
_LARGEST_FLOAT = 3e38  # just below float32's largest: only Inf is beyond


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One Great Expectations check, before the library is imported."""

    check: str  # kind, see checks.SEVERITIES
    title: str
    kind: str  # class name in great_expectations.expectations
    kwargs: dict


def frame_suite(schema: Schema, limits: LimitsCfg, num_tasks: int) -> list[Expectation]:
    """What must hold for the frame table."""
    suite = [*_order(schema, limits, num_tasks), *map(_not_null, INDEX_KEYS), *_values(schema)]
    for camera in schema.cameras:
        column = f"{IMAGE_PREFIX}{camera}.std"
        title = f"no image of camera {camera} is blank (standard deviation of its pixels)"
        suite.append(_between("blank_image", title, column, limits.min_image_std, None))
    for column, dtype in {"timestamp": "float32", "frame_index": "int64", "index": "int64"}.items():
        kwargs = {"column": column, "type_": dtype}
        title = f"{column} is {dtype}"
        suite.append(Expectation("types", title, "ExpectColumnValuesToBeOfType", kwargs))
    columns = [*INDEX_KEYS, *itertools.chain(*dimension_columns(schema).values())]
    columns += schema.scalars
    kwargs = {"column_set": columns, "exact_match": False}
    title = "every declared column is there"
    return [*suite, Expectation("columns", title, "ExpectTableColumnsToMatchSet", kwargs)]


def _order(schema: Schema, limits: LimitsCfg, num_tasks: int) -> list[Expectation]:
    """Of rows, frames and time."""
    return [
        Expectation(
            "rows",
            "there is at least one frame",
            "ExpectTableRowCountToBeBetween",
            {"min_value": 1},
        ),
        Expectation(
            "unique_frames",
            "no frame occurs twice in an episode",
            "ExpectCompoundColumnsToBeUnique",
            {"column_list": list(FRAME_KEYS)},
        ),
        Expectation(
            "frame_order",
            "index grows from row to row",
            "ExpectColumnValuesToBeIncreasing",
            {"column": "index", "strictly": True},
        ),
        _between(
            "frame_order", "frame_index counts 0, 1, 2, ... in every episode", "frame_step", 1, 1
        ),
        _between(
            "timestamps",
            f"timestamp is frame_index / {schema.fps} s",
            "timestamp_error_s",
            0,
            limits.max_timestamp_error_s,
        ),
        Expectation(
            "timestamps",
            "timestamp grows within an episode",
            "ExpectColumnValuesToBeBetween",
            {"column": TIME_STEP, "min_value": 0, "strict_min": True},
        ),
        _between(
            "task_index", "task_index is a row of tasks.parquet", "task_index", 0, num_tasks - 1
        ),
    ]


def _values(schema: Schema) -> Iterator[Expectation]:
    """Of vectors, reward and success."""
    dimensions = dimension_columns(schema)
    for key, vector in ((STATE, schema.state), (ACTION, schema.action)):
        low = vector.low or [None] * len(vector.names)
        high = vector.high or [None] * len(vector.names)
        for column, smallest, largest in zip(dimensions[key], low, high, strict=True):
            yield from (_not_null(column), _finite(column))
            if smallest is not None or largest is not None:
                title = f"{column} lies in [{smallest}, {largest}]"
                yield _between("limits", title, column, smallest, largest)
    for key in schema.scalars:
        yield _not_null(key)
        if SCALARS[key] != "bool":
            yield _finite(key)


def episode_suite(schema: Schema, limits: LimitsCfg) -> list[Expectation]:
    """What must hold for the episode table."""
    low, high = limits.min_episode_length, limits.max_episode_length
    suite = [
        _not_null("length"),
        _not_null("num_rows"),
        Expectation(
            "frame_counts",
            "every episode has as many frames as its table row says",
            "ExpectColumnPairValuesToBeEqual",
            {"column_A": "length", "column_B": "num_rows"},
        ),
        _between("episode_length", f"an episode has {low} to {high} frames", "num_rows", low, high),
        _not_null("instruction", check="instruction"),
        Expectation(
            "instruction",
            "the instruction is not empty",
            "ExpectColumnValuesToMatchRegex",
            {"column": "instruction", "regex": r"\S"},
        ),
        Expectation(
            "instruction",
            "the instruction is a sentence, not a number",
            "ExpectColumnValuesToNotMatchRegex",
            {"column": "instruction", "regex": r"^\s*[-+]?\d+(\.\d*)?\s*$"},
        ),
    ]
    for camera in schema.cameras:
        column = f"{IMAGE_PREFIX}{camera}.frozen_fraction"
        title = f"camera {camera} moves: at most {limits.max_frozen_fraction:.0%} of frames repeat"
        suite.append(_between("frozen_camera", title, column, None, limits.max_frozen_fraction))
    if schema.has_success:
        suite.append(
            Expectation(
                "ends_in_success",
                "the episode ends in success",
                "ExpectColumnValuesToBeInSet",
                {"column": "ends_in_success", "value_set": [True]},
            )
        )
    return suite


def run_suite(
    context: "AbstractDataContext",
    name: str,
    suite: Sequence[Expectation],
    table: pd.DataFrame,
    index_columns: Sequence[str],
    severities: Mapping[str, str],
) -> list[CheckResult]:
    """Run a suite on a table.

    Args:
        context: Great Expectations, see `rrf.data.validation.data_docs.open_context`.
        name: What the table holds, e.g. "frames".
        suite: The expectations; those whose severity is "off" are left out.
        table: The data, its rows numbered 0, 1, ...
        index_columns: Columns that name a row in findings.
        severities: Check kind -> error, warn or off.

    Returns:
        One result per expectation, in the suite's order.
    """
    import great_expectations as gx
    import great_expectations.expectations as gxe

    suite = [e for e in suite if severities[e.check] != "off"]
    asset = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    definition = gx.ValidationDefinition(
        name=name,
        data=asset.add_batch_definition_whole_dataframe(name),
        suite=context.suites.add(
            gx.ExpectationSuite(
                name=name,
                expectations=[
                    getattr(gxe, e.kind)(**e.kwargs, meta={"position": position})
                    for position, e in enumerate(suite)
                ],
            )
        ),
    )
    # by row number and only the first ones: naming the rows takes a minute per million bad values
    # copy on write, which is pandas 3's only way: else every range check copies the whole table
    with pd.option_context("mode.copy_on_write", True):
        outcome = context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": table},
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": MAX_FINDINGS},
        )
    by_position = {_position(r): r for r in outcome.results}
    return [
        _outcome(e, by_position[i], table, index_columns, severities) for i, e in enumerate(suite)
    ]


def _position(outcome) -> int:
    """Where in the suite a result belongs."""
    return outcome.expectation_config.meta["position"]


def _outcome(
    expectation: Expectation,
    outcome,
    table: pd.DataFrame,
    index_columns: Sequence[str],
    severities: Mapping[str, str],
) -> CheckResult:
    crash = _crash(outcome.exception_info)
    if crash:
        finding = Finding(key=str(expectation.kwargs.get("column", "")), value=crash)
        return CheckResult(
            expectation.check, expectation.title, "crashed", 1, (finding,), "great_expectations"
        )
    findings, num_bad = [], 0
    if not outcome.success:
        findings = _findings(expectation, outcome.result, table, index_columns)
        num_bad = outcome.result.get("unexpected_count", 1)
    return result(
        expectation.check,
        expectation.title,
        findings,
        severities,
        num_bad=num_bad,
        by="great_expectations",
    )


def _findings(
    expectation: Expectation, details: Mapping, table: pd.DataFrame, index_columns: Sequence[str]
) -> list[Finding]:
    kwargs = expectation.kwargs
    keys = [str(kwargs[name]) for name in ("column", "column_A", "column_B") if name in kwargs]
    rows = details.get("partial_unexpected_index_list")
    if not rows:
        observed = details.get("details", {}).get("mismatched", details.get("observed_value"))
        return [Finding(key=", ".join(keys) or expectation.check, value=str(observed))]
    findings = []
    for row in rows[:MAX_FINDINGS]:
        place = {name: _number(table[name].iloc[row]) for name in index_columns}
        findings.append(
            Finding(
                key=", ".join(keys) or ", ".join(kwargs.get("column_list", [])),
                value=" and ".join(str(table[key].iloc[row]) for key in keys)
                or "occurs more than once",
                episode=place.get("episode_index"),
                frame=place.get("frame_index"),
            )
        )
    return findings


def _number(value) -> int | None:
    """An index of a finding; None if the column is absent or missing a value there."""
    return None if value is None or pd.isna(value) else int(value)


def _crash(info: Mapping | None) -> str:
    """The message of an exception inside Great Expectations, empty if there was none."""
    if not info:
        return ""
    details = [info] if "raised_exception" in info else list(info.values())
    for detail in details:
        if detail.get("raised_exception"):
            return str(detail.get("exception_message")) or "exception without a message"
    return ""


def _not_null(column: str, check: str = "not_null") -> Expectation:
    kwargs = {"column": column}
    return Expectation(
        check, f"{column} is never missing or NaN", "ExpectColumnValuesToNotBeNull", kwargs
    )


def _finite(column: str) -> Expectation:
    return _between("finite", f"{column} is finite", column, -_LARGEST_FLOAT, _LARGEST_FLOAT)


def _between(
    check: str, title: str, column: str, low: float | None, high: float | None
) -> Expectation:
    kwargs: dict = {"column": column}
    if low is not None:
        kwargs["min_value"] = low
    if high is not None:
        kwargs["max_value"] = high
    return Expectation(check, title, "ExpectColumnValuesToBeBetween", kwargs)
