"""From recordings to a published dataset: only what passed validation is published."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from rrf.cli.data import app
from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.parts import parts_of
from rrf.data.files import content_digest
from rrf.data.transport.publish import publish
from rrf.data.validation.validate import validate
from rrf.workspace import HOME_VARIABLE
from tests.data.conftest import edit_column, make_cfg, write_raw
from tests.data.validation.conftest import nan_action, run


def test_only_exactly_the_content_that_passed_is_published(root, tmp_path):
    out, reports = tmp_path / "published", tmp_path / "reports"
    with pytest.raises(ValueError, match="was not validated; make it again"):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_failing_dataset_exits_non_zero_and_is_never_published(repository):
    assert invoke("convert", "toy").exit_code == 0
    nan_action(repository / "datasets/converted/toy")
    failed = invoke("validate", "toy")
    assert failed.exit_code == 1
    assert "episode 1, frame 2, action.dy: nan" in failed.output
    said = " ".join(failed.output.split())
    assert "configs/datasets/toy.yaml, where checks: {severity: {not_null: " in said
    assert "warn}} lets it only warn; then: dvc repro publish@toy" in said
    assert (repository / "datasets/reports/toy/validation.html").is_file()
    refused = invoke("stats", "toy")
    assert isinstance(refused.exception, ValueError)
    assert not (repository / "datasets/toy").exists()
