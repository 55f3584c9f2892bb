"""Validation finds what is planted, says where, and stops what must not be used.

One long file, because importing Great Expectations takes ten seconds in every process that does.
"""

import itertools
import json
import shutil
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rrf.cli.data import app
from rrf.data.conversion.checks_cfg import ChecksCfg, LimitsCfg
from rrf.data.conversion.conversion_record import write_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import InstructionCfg
from rrf.data.conversion.parts import parts_of
from rrf.data.dataset import layout
from rrf.data.files import content_digest
from rrf.data.images import encode_png
from rrf.data.transport.publish import publish
from rrf.data.validation import validate as validation
from rrf.data.validation.checks import SEVERITIES
from rrf.data.validation.data_docs import open_context
from rrf.data.validation.expectations import (
    FRAME_KEYS,
    Expectation,
    episode_suite,
    frame_suite,
    run_suite,
)
from rrf.data.validation.validate import sample_rows, validate
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import SIZE, edit_column, edit_images, edit_table, make_cfg, write_raw

IMAGES = "observation.images.front"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """Five good episodes: rows 0..7, 8..13, 14..20 of one task, 21..25, 26..35 of the other."""
    folder = tmp_path_factory.mktemp("pristine")
    raw = write_raw(folder / "raw", {"pull": [8, 6, 7], "push": [5, 10]})
    for storage in ("image", "video"):
        convert(make_cfg(storage=storage), raw, folder / storage)
    return folder


@pytest.fixture
def root(pristine, tmp_path):
    shutil.copytree(pristine / "image", tmp_path / "d")
    return tmp_path / "d"


def run(root, limits=LimitsCfg(), **severity):
    levels: dict = {"constant_dimensions": "off"} | severity  # the drawn gripper never moves
    cfg = ChecksCfg(severity=levels, limits=limits)
    return validate("toy", root, cfg, root.parent / "reports")


def findings(report, status="fail"):
    return {
        (check.check, str(finding))
        for check in report.checks
        if check.status == status
        for finding in check.findings
    }


@pytest.mark.parametrize("storage", ["image", "video"])
def test_a_good_dataset_passes_every_check(pristine, tmp_path, storage):
    report = validate("toy", pristine / storage, ChecksCfg(), tmp_path)
    assert report.passed
    odd = {check.check: check.status for check in report.checks if check.status != "pass"}
    assert odd == {"constant_dimensions": "warn"}
    expected = {("constant_dimensions", "observation.state.gripper: is 0.5 in all 36 frames")}
    assert findings(report, "warn") == expected
    only_if_told = {"cut_episodes"}  # by the recordings
    assert {check.check for check in report.checks} == set(SEVERITIES) - only_if_told
    assert report.facts["frames"] == 36
    assert report.facts["episode_length"] == [5, 7.0, 10]
    assert report.facts["success_rate"] == 1.0


def nan_action(root):
    row = pq.read_table(root / "data/chunk-000/file-000.parquet")["action"][10].as_py()
    edit_column(root, "action", {10: [row[0], float("nan"), row[2]]})


def edit_info(root, **changes):
    path = root / layout.INFO
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_episode_table(root, column, row, value):
    def change(table):
        values = table[column].to_pylist()
        values[row] = value
        index = table.schema.get_field_index(column)
        return table.set_column(index, column, pa.array(values, table.schema.field(column).type))

    edit_table(root / "meta/episodes/chunk-000/file-000.parquet", change)


def duplicate_episode(root):
    """Episode 3 (5 frames) becomes a copy of the first 5 frames of episode 4, which is cut to 5."""

    def change(table):
        shown = list(range(21)) + list(range(26, 31)) * 2
        copied = table.take(shown)
        for key in ("frame_index", "episode_index", "index", "timestamp"):
            kept = table[key].combine_chunks().slice(0, 26).to_pylist()
            own = table[key].to_pylist()
            values = kept + (own[26:31] if key != "index" else list(range(26, 31)))
            field = table.schema.field(key)
            copied = copied.set_column(
                table.schema.get_field_index(key), field, pa.array(values, field.type)
            )
        return copied

    edit_table(root / "data/chunk-000/file-000.parquet", change)
    edit_episode_table(root, "length", 4, 5)
    edit_episode_table(root, "dataset_to_index", 4, 31)
    edit_info(root, total_frames=31)


def freeze(root):
    path = root / "data/chunk-000/file-000.parquet"
    first = pq.read_table(path)[IMAGES][14].as_py()["bytes"]
    edit_images(root, dict.fromkeys(range(14, 21), lambda blob: first))


GREEN = encode_png(np.full((1, SIZE, SIZE, 3), (0, 135, 0), np.uint8))[0]
BLACK = encode_png(np.zeros((1, SIZE, SIZE, 3), np.uint8))[0]
SMALL = encode_png(np.full((1, 8, 8, 3), 200, np.uint8))[0]

PLANTED = {
    "nan action": (nan_action, "not_null", "episode 1, frame 2, action.dy: nan"),
    "action beyond its limits": (
        lambda root: edit_column(root, "action", {30: [1.5, 0.0, 0.0]}),
        "limits",
        "episode 4, frame 4, action.dx: 1.5",
    ),
    "infinite state": (
        lambda root: edit_column(root, "observation.state", {0: [0.0, 0.0, float("inf"), 0.5]}),
        "finite",
        "episode 0, frame 0, observation.state.z: inf",
    ),
    "timestamp that jumps": (
        lambda root: edit_column(root, "timestamp", {12: 0.9}),
        "timestamps",
        "episode 1, frame 4, timestamp_error_s: 0.",
    ),
    "time that stands still": (
        lambda root: edit_column(root, "timestamp", {29: 0.2}),
        "timestamps",
        "episode 4, frame 3, timestamp_step_s: 0.0",
    ),
    "frame that occurs twice": (
        lambda root: edit_column(root, "frame_index", {22: 0}),
        "unique_frames",
        "episode 3, frame 0, episode_index, frame_index: occurs more than once",
    ),
    "frame that was dropped": (
        lambda root: edit_column(root, "frame_index", {25: 7}),
        "frame_order",
        "episode 3, frame 7, frame_step: 4",
    ),
    "unknown task index": (
        lambda root: edit_column(root, "task_index", {3: 9}),
        "task_index",
        "episode 0, frame 3, task_index: 9",
    ),
    "undecodable image": (
        lambda root: edit_images(root, {15: lambda blob: b"junk"}),
        "images_decodable",
        f"episode 2, frame 1, {IMAGES}: 4 bytes of no known image format",
    ),
    "truncated image": (
        lambda root: edit_images(root, {9: lambda blob: blob[:80]}),
        "images_decodable",
        f"episode 1, frame 1, {IMAGES}: 80 bytes",
    ),
    "image of another size": (
        lambda root: edit_images(root, {10: lambda blob: SMALL}),
        "images_decodable",
        f"episode 1, frame 2, {IMAGES}: the image is [8, 8, 3], expected [16, 16, 3]",
    ),
    "black image": (
        lambda root: edit_images(root, {35: lambda blob: BLACK}),
        "blank_image",
        f"episode 4, frame 9, {IMAGES}.std: 0.0",
    ),
    "plain green image": (
        lambda root: edit_images(root, {30: lambda blob: GREEN}),
        "blank_image",
        f"episode 4, frame 4, {IMAGES}.std: 0.0",
    ),
    "camera that stands still": (
        freeze,
        "frozen_camera",
        f"episode 2, {IMAGES}.frozen_fraction: 1.0",
    ),
    "episode recorded twice": (
        duplicate_episode,
        "duplicate_episodes",
        "episode 4, episode: same content as episode 3",
    ),
    "counts of another dataset": (
        lambda root: edit_info(root, total_frames=40),
        "counts",
        "total_frames: info.json says 40, the data hold 36, the tables list 36",
    ),
    "split past the end": (
        lambda root: edit_info(root, splits={"train": "0:4", "test": "4:6"}),
        "splits",
        "splits.test: '4:6' for 5 episodes",
    ),
    "length other than the rows": (
        lambda root: edit_episode_table(root, "length", 1, 5),
        "frame_counts",
        "episode 1, length, num_rows: 5 and 6",
    ),
    "range that contradicts the rows": (
        lambda root: edit_episode_table(root, "dataset_from_index", 2, 13),
        "episode_ranges",
        "episode 2, dataset_from_index: starts at row 13, the one before ends at 14",
    ),
    "file that does not hold the rows": (
        lambda root: edit_episode_table(root, "data/file_index", 2, 1),
        "episode_ranges",
        "episode 2, dataset_from_index: its rows lie in chunk and file [0, 0]",
    ),
    "instruction nobody lists": (
        lambda root: edit_episode_table(root, "tasks", 0, ["do the pul"]),
        "tasks",
        "episode 0, tasks: instruction 'do the pul' is not in tasks.parquet",
    ),
}


# Faults that do not touch each other are planted together: running the suites takes a second.
PLANTED_TOGETHER = {
    "values": [
        "nan action",
        "action beyond its limits",
        "infinite state",
        "timestamp that jumps",
        "time that stands still",
        "unknown task index",
    ],
    "images": [
        "undecodable image",
        "truncated image",
        "image of another size",
        "black image",
        "plain green image",
    ],
    "order": ["frame that occurs twice", "frame that was dropped", "camera that stands still"],
    "metadata": [
        "counts of another dataset",
        "split past the end",
        "file that does not hold the rows",
        "instruction nobody lists",
    ],
    "lengths": ["length other than the rows"],
    "ranges": ["range that contradicts the rows"],
    "duplicates": ["episode recorded twice"],
}


def test_every_fault_is_planted_once():
    assert sorted(itertools.chain(*PLANTED_TOGETHER.values())) == sorted(PLANTED)


@pytest.mark.parametrize("group", PLANTED_TOGETHER)
def test_every_planted_fault_is_found_and_named(root, group):
    faults = [PLANTED[name] for name in PLANTED_TOGETHER[group]]
    for plant, _, _ in faults:
        plant(root)
    report = run(root)
    assert not report.passed
    for _, check, expected in faults:
        named = [text for kind, text in findings(report) if kind == check]
        assert any(text.startswith(expected) for text in named), findings(report)


def drop_column(root, key):
    edit_table(root / "data/chunk-000/file-000.parquet", lambda table: table.drop_columns([key]))


def lose_a_row(root):
    def change(table):
        values = table["action"].to_pylist()
        values[4] = None
        column = pa.array(values, pa.list_(pa.float32()))
        return table.set_column(table.schema.get_field_index("action"), "action", column)

    edit_table(root / "data/chunk-000/file-000.parquet", change)


UNREADABLE = {
    "no frames": (
        lambda root: edit_table(
            root / "data/chunk-000/file-000.parquet", lambda table: table.slice(0, 0)
        ),
        "the data files hold no frames",
    ),
    "truncated parquet": (
        lambda root: (root / "data/chunk-000/file-000.parquet").write_bytes(b"PAR1 and no more"),
        "data/chunk-000/file-000.parquet: ",
    ),
    "no tasks": (lambda root: (root / layout.TASKS).unlink(), "meta: "),
    "declared key missing": (
        lambda root: drop_column(root, "action"),
        "action: declared in info.json, missing in file-000.parquet",
    ),
    "declared reward missing": (
        lambda root: drop_column(root, "next.reward"),
        "next.reward: declared in info.json, missing in file-000.parquet",
    ),
    "action stored as text": (
        lambda root: edit_table(
            root / "data/chunk-000/file-000.parquet",
            lambda t: t.set_column(2, "action", pa.array(["[0, 0, 0]"] * t.num_rows)),
        ),
        "action: is string in file-000.parquet, not float32",
    ),
    "row without a vector": (
        lose_a_row,
        "column action: row 4 is missing",
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_dataset_that_cannot_be_read_fails_with_a_report(root, fault):
    damage, expected = UNREADABLE[fault]
    damage(root)
    report = run(root)
    assert not report.passed
    assert any(expected in text for _, text in findings(report)), findings(report)
    assert "Failed" in (root.parent / "reports/validation.html").read_text()
    assert not run(root, files="warn", features="warn").passed  # as nothing else was looked at


def test_a_video_that_is_missing_or_too_short_is_found(pristine, tmp_path):
    shutil.copytree(pristine / "video", tmp_path / "d")
    edit_episode_table(tmp_path / "d", f"videos/{IMAGES}/from_timestamp", 4, 3.0)
    report = run(tmp_path / "d")
    named = sorted(text for kind, text in findings(report) if kind == "images_decodable")
    assert len(named) == 10
    assert named[0].startswith(f"episode 4, frame 0, {IMAGES}: ")
    assert "ends before frame 36" in named[0]
    video = next((tmp_path / "d").rglob("*.mp4"))
    video.unlink()
    report = run(tmp_path / "d")
    expected = f"{IMAGES}: videos/{IMAGES}/chunk-000/file-000.mp4 is missing"
    assert ("features", expected) in findings(report)


def test_a_frame_that_lost_its_episode_is_found(root):
    edit_column(root, "episode_index", {6: None})
    report = run(root)
    assert findings(report) == {
        ("features", f"tables: {root}: column episode_index: row 6 is missing")
    }


def test_severity_decides_between_failing_warning_and_silence(root):
    edit_column(root, "next.success", {35: False})
    assert run(root).passed
    expected = {("ends_in_success", "episode 4, ends_in_success: False")}
    assert findings(run(root), "warn") == expected
    assert findings(run(root, ends_in_success="error")) == expected
    silent = run(root, ends_in_success="off")
    assert "ends_in_success" not in {check.check for check in silent.checks}


def test_actions_that_repeat_are_a_warning_with_the_baseline(root):
    steps = {row: [row / 1000, 0.0, 0.0] for row in range(36)}
    edit_column(root, "action", steps)
    report = run(root)
    assert report.passed
    # consecutive actions differ by 0.001; the standard deviation of 0, 1, ... 35 is 10.3883
    assert report.facts["hold_previous_error_std"] == pytest.approx(1 / 10.3883, abs=1e-5)
    strict = run(root, LimitsCfg(min_hold_previous_error=0.1))
    expected = f"action: repeating the last action is off by only {1 / 10.3883:.4f} std"
    assert findings(strict, "warn") == {("hold_previous_baseline", expected)}


def test_limits_of_the_config_are_used(root):
    limits = LimitsCfg(max_episode_length=9)
    report = validate("toy", root, ChecksCfg(limits=limits), root.parent / "reports")
    assert findings(report) == {("episode_length", "episode 4, num_rows: 10")}


def test_many_bad_rows_are_counted_and_the_first_listed(root):
    edit_images(root, dict.fromkeys(range(30), lambda blob: BLACK))
    blank = next(c for c in run(root).checks if c.check == "blank_image" and c.status == "fail")
    assert blank.num_bad == 30
    assert len(blank.findings) == 20


def test_an_instruction_that_is_a_number_is_found(tmp_path):
    cfg = make_cfg(instruction=InstructionCfg(text=" 17"))
    convert(cfg, write_raw(tmp_path / "raw", {"pull": [5, 6]}), tmp_path / "d")
    report = run(tmp_path / "d")
    assert findings(report) == {
        ("instruction", "episode 0, instruction:  17"),
        ("instruction", "episode 1, instruction:  17"),
    }


def test_what_conversion_warned_of_stands_in_the_report(root):
    write_conversion(root, "rlds", "datasets/raw/x", ["two", "one"])
    expected = {("source", "recordings: one"), ("source", "recordings: two")}
    report = run(root)
    assert report.passed
    assert findings(report, "warn") == expected
    assert findings(run(root, source="error")) == expected
    assert "source" not in {check.check for check in run(root, source="off").checks}
    (root / "meta/conversion.json").write_text("{")
    ((check, text),) = findings(run(root), "warn")
    assert check == "source"
    assert "meta/conversion.json is damaged" in text


def test_data_docs_of_great_expectations_are_written_beside_the_report(root):
    nan_action(root)
    run(root)
    reports = root.parent / "reports"
    index = (reports / "data_docs/index.html").read_text()
    assert "frames" in index
    assert "episodes" in index
    results = {
        path.relative_to(reports / "data_docs/validations").parts[0]: path.read_text()
        for path in (reports / "data_docs/validations").rglob("*.html")
    }
    assert set(results) == {"frames", "episodes"}
    assert "action.dy" in results["frames"]
    assert 'href="data_docs/index.html"' in (reports / "validation.html").read_text()
    (root / layout.TASKS).unlink()  # nothing for Great Expectations to look at
    run(root)
    assert not (reports / "data_docs").exists()
    assert 'href="data_docs' not in (reports / "validation.html").read_text()


def test_the_report_is_the_same_every_time_and_needs_nothing_from_outside(root):
    nan_action(root)
    edit_images(root, {15: lambda blob: b"junk"})
    pages = []
    for _ in range(2):
        run(root)
        reports = root.parent / "reports"
        pages.append(
            [(reports / name).read_text() for name in ("validation.json", "validation.html")]
        )
    assert pages[0] == pages[1]
    page = pages[0][1]
    assert "episode 1, frame 2" in page
    assert "data:image/png;base64," in page
    assert "<svg" in page
    for outside in ("http://", "https://", "<script", "<link", "@import", "url("):
        assert outside not in page


def test_pictures_of_the_first_instructions_are_shown(root, monkeypatch):
    assert sample_rows(root) == [0, 2, 4, 5, 7, 21, 22, 23, 24, 25]
    monkeypatch.setattr(validation, "MAX_SHOWN", 1)
    assert sample_rows(root) == [0, 2, 4, 5, 7]


def test_instructions_cannot_inject_markup(tmp_path):
    raw = write_raw(tmp_path / "raw", {"<b>x": [5]})
    convert(make_cfg(), raw, tmp_path / "d")
    run(tmp_path / "d")
    page = (tmp_path / "reports/validation.html").read_text()
    assert "do the &lt;b&gt;x" in page
    assert "<b>x" not in page


def test_suites_follow_the_schema():
    schema = make_cfg().schema()
    frames = frame_suite(schema, LimitsCfg(), num_tasks=2)
    limited = {e.kwargs["column"]: e.kwargs for e in frames if e.check == "limits"}
    assert set(limited) == {
        *(f"observation.state.{name}" for name in ("x", "y", "z", "gripper")),
        *(f"action.{name}" for name in ("dx", "dy", "dz")),
    }
    assert limited["observation.state.gripper"] == {
        "column": "observation.state.gripper",
        "min_value": 0.0,
        "max_value": 1.0,
    }
    # a range check passes over NaN, so each has a not-null check beside it
    not_null = {e.kwargs["column"] for e in frames if e.check == "not_null"}
    assert set(limited) <= not_null
    blind = make_cfg(success=None, reward=None).schema()
    assert "ends_in_success" not in {e.check for e in episode_suite(blind, LimitsCfg())}
    everything = frames + episode_suite(schema, LimitsCfg())
    assert {e.check for e in everything} <= set(SEVERITIES)


def test_an_expectation_that_crashes_is_not_mistaken_for_bad_data():
    table = pd.DataFrame({"episode_index": [0], "frame_index": [0], "task": ["text"]})
    suite = [
        Expectation("limits", "absent", "ExpectColumnValuesToNotBeNull", {"column": "absent"}),
        Expectation(
            "rows", "rows", "ExpectTableRowCountToBeBetween", {"min_value": 1, "max_value": 5}
        ),
    ]
    with open_context() as context:
        crashed, passed = run_suite(context, "frames", suite, table, FRAME_KEYS, SEVERITIES)
    assert (crashed.status, crashed.num_bad) == ("crashed", 1)
    assert "absent" in crashed.findings[0].value
    assert passed.status == "pass"


def test_a_range_check_does_not_copy_the_columns_beside_it():
    table = pd.DataFrame(np.ones((100_000, 80)), columns=[f"c{i}" for i in range(80)])  # 64 MB
    suite = [
        Expectation("limits", "c0 is small", "ExpectColumnValuesToBeBetween", kwargs)
        for kwargs in [{"column": "c0", "max_value": limit} for limit in (0, 1)]
    ]
    with open_context() as context:
        run_suite(context, "imports", suite, table[:1], (), SEVERITIES)
        tracemalloc.start()
        too_large, passed = run_suite(context, "frames", suite, table, (), SEVERITIES)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (too_large.num_bad, passed.num_bad) == (100_000, 0)
    assert peak_bytes < 32e6


def test_a_missing_dataset_names_the_commands_that_bring_it(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset at .*; run: dvc repro --pull"):
        run(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_only_exactly_the_content_that_passed_is_published(root, tmp_path):
    out, reports = tmp_path / "published", tmp_path / "reports"
    with pytest.raises(ValueError, match="was not validated; run: dvc repro"):
        publish(root, reports, out)
    assert run(root).passed
    stats = publish(root, reports, out)
    assert stats["action"]["max"][0] == pytest.approx(0.09)
    assert json.loads((out / "norm_stats.json").read_text()) == stats
    assert list(stats["action"]) == ["min", "max", "mean", "std", "q01", "q99", "count"]
    edit_column(root, "action", {0: [0.5, 0.0, 0.0]})
    with pytest.raises(ValueError, match="judged another content"):
        publish(root, reports, out)
    nan_action(root)
    assert not run(root).passed
    with pytest.raises(ValueError, match=r"toy did not pass validation \(not_null\)"):
        publish(root, reports, out)
    shutil.rmtree(root)
    assert json.loads((out / "norm_stats.json").read_text()) == stats


def test_a_dataset_is_not_published_while_another_process_converts_it(root, tmp_path):
    assert run(root).passed
    out, reports = tmp_path / "published", tmp_path / "reports"
    message = rf"another process is converting or publishing {root} at this moment"
    with parts_of(root) as parts, pytest.raises(ValueError, match=message):
        publish(root, reports, out)
    assert not out.exists()
    (parts / "finished").mkdir(parents=True)  # of a conversion that was interrupted
    publish(root, reports, out)
    assert out.is_dir()
    assert (parts / "finished").is_dir()
    (parts / "finished").rmdir()
    publish(root, reports, out)
    assert not parts.exists()


def test_content_that_changes_while_it_is_judged_is_not_published(root, tmp_path):
    def on_stage(done, total, what):
        if what == "expectations on episodes":
            edit_column(root, "action", {0: [5.0, 0.0, 0.0]})

    assert validate("toy", root, ChecksCfg(), tmp_path / "reports", on_stage).passed
    with pytest.raises(ValueError, match="judged another content"):
        publish(root, tmp_path / "reports", tmp_path / "published")


def test_the_digest_sees_names_and_contents(root):
    before = content_digest(root)
    (root / "meta/tasks.parquet").rename(root / "meta/task.parquet")
    renamed = content_digest(root)
    (root / "meta/task.parquet").rename(root / "meta/tasks.parquet")
    assert content_digest(root) == before != renamed


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with the toy dataset's config and recordings."""
    write_raw(tmp_path / "datasets/raw/toy", {"pull": [8, 6, 7], "push": [5, 10]})
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / "configs/datasets/toy.yaml").write_text(make_cfg().to_yaml())
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, words)


def test_the_commands_take_recordings_to_a_published_dataset(repository):
    for command in ("convert", "validate", "stats", "validate"):
        result = invoke(command, "toy")
        assert result.exit_code == 0, result.output
    assert "36 frames" in invoke("convert", "toy").output
    shown = invoke("show", "toy").output
    assert "5 episodes, 36 frames" in shown
    assert "do the push" in shown
    assert "action.dx" in shown
    assert (repository / "datasets/toy/norm_stats.json").is_file()


def test_drift_from_the_published_version_is_a_warning(repository):
    for command in ("convert", "validate", "stats"):
        assert invoke(command, "toy").exit_code == 0
    edit_column(repository / "datasets/converted/toy", "action", {35: [1.0, 1.0, 1.0]})
    result = invoke("validate", "toy")
    assert result.exit_code == 0
    assert "statistics_drift" in result.output
    report = json.loads((repository / "datasets/reports/toy/validation.json").read_text())
    (drift,) = [check for check in report["checks"] if check["check"] == "statistics_drift"]
    values = {finding["key"]: finding["value"] for finding in drift["findings"]}
    assert values["action.dy"] == "mean -0.02083 -> 0.008056, std 0.01516 -> 0.1683"


def test_a_failing_dataset_exits_non_zero_and_is_never_published(repository):
    assert invoke("convert", "toy").exit_code == 0
    nan_action(repository / "datasets/converted/toy")
    failed = invoke("validate", "toy")
    assert failed.exit_code == 1
    assert "episode 1, frame 2, action.dy: nan" in failed.output
    assert (repository / "datasets/reports/toy/validation.html").is_file()
    refused = invoke("stats", "toy")
    assert isinstance(refused.exception, ValueError)
    assert not (repository / "datasets/toy").exists()
