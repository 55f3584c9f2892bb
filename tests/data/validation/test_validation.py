"""What validation says of a good dataset, how severe its checks are, and the report it writes."""

import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg, LimitsCfg
from rrf.data.conversion.conversion_record import write_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import InstructionCfg
from rrf.data.dataset import layout
from rrf.data.validation import validate as validation
from rrf.data.validation.checks import SEVERITIES
from rrf.data.validation.validate import sample_rows, validate
from tests.data.conftest import edit_column, edit_images, make_cfg, write_raw
from tests.data.validation.conftest import BLACK, findings, nan_action, run


@pytest.mark.parametrize("storage", ["image", "video"])
def test_a_good_dataset_passes_every_check(pristine, tmp_path, storage):
    report = validate("toy", pristine / storage, ChecksCfg(), tmp_path)
    assert report.passed
    odd = {check.check: check.status for check in report.checks if check.status != "pass"}
    assert odd == {"constant_dimensions": "warn"}
    expected = {("constant_dimensions", "observation.state.gripper: is 0.5 in all 36 frames")}
    assert findings(report, "warn") == expected
    only_if_told = {"cut_episodes", "source_statistics"}  # by the recordings
    assert {check.check for check in report.checks} == set(SEVERITIES) - only_if_told
    assert report.facts["frames"] == 36
    assert report.facts["episode_length"] == [5, 7.0, 10]
    assert report.facts["success_rate"] == 1.0


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_missing_dataset_names_the_commands_that_bring_it(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset at .*; make it again where"):
        run(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []
