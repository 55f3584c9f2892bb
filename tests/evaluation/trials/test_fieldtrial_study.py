"""A study of fieldtrial 0.3: its own numbers, and what a study from anybody may try.

`tests/golden/fieldtrial_study.sql` is the database of a study that fieldtrial has simulated,
`fieldtrial_study_analysis` in `trials.json` what fieldtrial says about it.
"""

import contextlib
import json
import random
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.evaluation.intervals import wilson
from rrf.evaluation.trials.foreign import FORMATS, fieldtrial_study
from rrf.evaluation.trials.outcomes import Table, text

GOLDEN = Path(__file__).parents[2] / "golden"
DUMP = (GOLDEN / "fieldtrial_study.sql").read_text()
TOLD = json.loads((GOLDEN / "trials.json").read_text())["fieldtrial_study_analysis"]


@pytest.fixture
def folder(tmp_path):
    """The folder of the study."""
    change(tmp_path / "fieldtrial.db", DUMP)
    return tmp_path


def change(file, *statements) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database:
        for statement in statements:
            database.executescript(statement)
        database.commit()


def read(path) -> Table:
    return FORMATS["fieldtrial"].read(path, "")


def test_a_study_has_the_numbers_of_fieldtrial(folder):
    table = read(folder)
    for arm in TOLD["arms"]:
        valid = table.of(arm["arm"])
        solved = sum(outcome.success for outcome in valid)
        invalid = sum(o.arm == arm["arm"] and bool(o.invalid) for o in table.outcomes)
        told = (arm["successes"], arm["completed"], arm["invalid"])
        assert (solved, len(valid), invalid) == told
        interval = (arm["ci"]["low"], arm["ci"]["high"])
        assert wilson(solved, len(valid)) == pytest.approx(interval, abs=1e-9)
    (pair,) = TOLD["primary"]["pairwise"]
    said = text(table)  # baseline comes first here, so what it wins, q50 loses
    assert f"McNemar p = {pair['pvalue']:.4f} ({pair['n_pairs']} pairs, 1 won, 3 lost)" in said
    assert (pair["c"], pair["b"]) == (1, 3)
    assert "planned: q50 against baseline, two-sided, alpha 0.05" in said
    assert "trials from fieldtrial 0.3.0 (study cups)" in said
    failed = next(outcome for outcome in table.outcomes if outcome.tags)
    assert (failed.stage, failed.termination, failed.tags) == ("near", "timeout", ("missed",))


def test_folder_design_and_database_are_the_same_study(folder):
    design = folder / "study.yaml"
    with contextlib.closing(sqlite3.connect(folder / "fieldtrial.db")) as database:
        locked = database.execute("SELECT design_yaml FROM study").fetchone()[0]
    design.write_text(locked)
    assert read(folder) == read(design) == read(folder / "fieldtrial.db")
    design.write_text(locked.replace("alpha", "ALPHA").replace("seed: 7", "seed: 8"))
    assert "study.yaml is another one than what was locked, which counts" in text(read(folder))
    out = folder / "table.json"
    words = ["trial", "import", str(folder), "--format", "fieldtrial", "--out", str(out)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "q50: 0.800" in result.output
    assert Table.load(out) == read(folder)


def test_blinded_arms_are_codes_and_what_happened_is_said(folder):
    change(
        folder / "fieldtrial.db",
        "UPDATE study SET unblinded_at = NULL",
        "UPDATE trial SET status = 'running' WHERE id = (SELECT MAX(id) FROM trial)",
        "UPDATE event SET kind = 'amendment' WHERE id = (SELECT MAX(id) FROM event)",
    )
    table = read(folder)
    assert sorted(table.arms()) == sorted(arm["blind_code"] for arm in TOLD["arms"])
    said = text(table)
    for told in ("named by their codes", "amended 1 times", "1 trials are running, and left out"):
        assert told in said


def test_a_plan_that_may_stop_early_says_that_these_numbers_do_not_know_it(folder):
    planned = "analysis:\n  stopping: {rule: anytime, min_blocks: 4}"
    sql = f"UPDATE study SET design_yaml = replace(design_yaml, 'analysis:', '{planned}')"
    change(folder / "fieldtrial.db", sql)
    assert "planned: anytime. The bounds and p-values below are those of trials of a fixed" in text(
        read(folder)
    )


DESIGNS = {
    "fieldtrial: 1": ("fieldtrial: 2", r"study\.yaml: fieldtrial is 2, allowed: 1"),
    "light: {": ("mood: {", None),  # factors have the names that people give them
    "title:": ("mood:", r"nobody here knows what 'mood' means; known are: fieldtrial, name"),
    "blinding:": ("mood:", r"nobody here knows what 'design\.mood' means"),
    "treatment:": ("mood:", r"nobody here knows what 'analysis\.primary\.comparison\.mood' mea"),
    "randomized_block": ("crossover_rounds", r"design\.type is 'crossover_rounds', whose trials"),
    "success: done": ("success: over", r"rubric needs stages with ids, one of which is its succ"),
    "success: held": ("success: held", None),
    "rubric:": ("rubric: [1, 2]\nx:", r"nobody here knows what 'x' means|rubric is \[1, 2\]"),
    "arms:": ("arms: &a\n  - *a\narms:", r"study\.yaml is not YAML"),
}


@pytest.mark.parametrize("old", DESIGNS)
def test_a_design_of_another_version_is_refused_by_the_name_of_its_key(folder, old):
    new, why = DESIGNS[old]
    sql = f"UPDATE study SET design_yaml = replace(design_yaml, '{old}', '{new}')"
    change(folder / "fieldtrial.db", sql)
    if why is None:
        assert len(read(folder).outcomes) == 22
        return
    with pytest.raises(ValueError, match=why) as refusal:
        read(folder)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE VIEW v AS SELECT 1", "has a view 'v', which fieldtrial 0.3 has not"),
        ("DROP TABLE event; CREATE VIEW event AS SELECT 1 AS id", "has a view 'event'"),
        (
            "CREATE TRIGGER t AFTER INSERT ON trial BEGIN DELETE FROM trial; END",
            "has a trigger 't'",
        ),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "has a virtual table 'f'"),
        ("CREATE TABLE mood (id)", "has a table 'mood'"),
        ("DROP TABLE event", "is no study of fieldtrial 0.3: it has no table 'event'"),
        ("UPDATE alembic_version SET version_num = '0003_x'", "has schema '0003_x', known are"),
        ("DELETE FROM alembic_version", "has schema none, known are"),
        ("ALTER TABLE trial ADD COLUMN mood TEXT", "nobody here knows what 'mood' means"),
        (
            "ALTER TABLE trial ADD COLUMN m AS (abs(-9223372036854775808))",
            "nobody here knows what 'm'",
        ),
        ("ALTER TABLE trial DROP COLUMN termination", "trial has no column 'termination'"),
        ("INSERT INTO study SELECT 'x', name, title, design_yaml, design_hash, status, created_at,"
         "locked_at, unblinded_at, closed_at, fieldtrial_version FROM study", "has 2 studies"),
        ("DELETE FROM study", "has 0 studies, allowed: 1"),
        ("UPDATE trial SET slot_id = 'nobody'", "its slot_id 'nobody' is not there"),
        ("UPDATE schedule_slot SET arm_id = x'00'", r"its arm_id b'\\x00' is not there"),
        ("DELETE FROM session", "its session_id .* is not there"),
        ("UPDATE trial SET slot_id = (SELECT MIN(slot_id) FROM trial)", "another trial of its slo"),
        ("UPDATE trial SET success = NOT success", "success is [01], but its stage is"),
        ("UPDATE trial SET stage_index = 3", "stage_index is 3, allowed: -1 to 2"),
        ("UPDATE trial SET stage_index = NULL", "stage_index is None, allowed"),
        ("UPDATE trial SET status = 'maybe'", "status is 'maybe', not completed or invalid"),
        ("UPDATE trial SET duration_s = -1", "duration_s is -1.0, not a finite number of 0"),
        ("UPDATE trial SET duration_s = 9e999", "duration_s is inf, not a finite number"),
        ("UPDATE trial SET failure_tags = '{}'", "failure_tags is no JSON list"),
        ("UPDATE trial SET failure_tags = replace(hex(zeroblob(9999)), '00', '[')", "no JSON list"),
        ("UPDATE trial SET notes = x'ff'", r"notes is b'\\xff', not text"),
        ("UPDATE trial SET notes = CAST(x'ff' AS TEXT)", "cannot be read as the database"),
        ("UPDATE trial SET notes = hex(zeroblob(6000000))", "cannot be read as the database"),
        ("UPDATE trial SET status = 'running'", "has no trials that are finished"),
    ],
)  # fmt: skip
def test_a_database_that_is_none_of_fieldtrials_or_contradicts_itself_is_refused(folder, sql, why):
    change(folder / "fieldtrial.db", "PRAGMA foreign_keys = OFF", sql)
    with pytest.raises(ValueError, match=why) as refusal:
        read(folder)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_a_database_that_is_too_large_is_not_opened(folder, monkeypatch):
    monkeypatch.setattr(fieldtrial_study, "_MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"bytes, allowed: 1000"):
        read(folder)
    monkeypatch.undo()
    monkeypatch.setattr(fieldtrial_study, "_MOST_ROWS", 21)
    with pytest.raises(ValueError, match=r"has more than 21 rows"):
        read(folder)


def test_a_folder_without_a_database_says_what_to_type(tmp_path):
    (tmp_path / "study.yaml").write_text("fieldtrial: 1\n")
    for path in (tmp_path, tmp_path / "study.yaml"):
        with pytest.raises(ValueError, match=r"has no fieldtrial\.db, so nothing was played there"):
            read(path)


def test_a_database_that_is_changed_by_chance_is_read_or_refused_and_never_changed(folder):
    file, chance = folder / "fieldtrial.db", random.Random(0)
    good, refused = file.read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 40)):
            damaged[chance.randrange(16, len(good))] = chance.randrange(256)
        if chance.random() < 0.2:
            del damaged[chance.randrange(16, len(good)) :]
        file.write_bytes(damaged)
        try:
            read(folder)
        except ValueError:
            refused += 1
        assert file.read_bytes() == damaged
        assert {path.name for path in folder.iterdir()} == {"fieldtrial.db"}
    assert refused > 20
