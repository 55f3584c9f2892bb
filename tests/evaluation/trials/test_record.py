"""The record of a study: what counts, what is undone, and what a reader notices."""

import collections
import errno
import json
import os

import pytest

from rrf.evaluation.trials import order
from rrf.evaluation.trials.plan import Plan
from rrf.evaluation.trials.record import ConflictError, Record, hold
from rrf.evaluation.trials.report import text
from rrf.evaluation.trials.results import evaluation_of, progress, standing
from tests.evaluation.trials.studies import GATE, PROTOCOL, SECRET, answer, play, study


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    study()
    return tmp_path / "trials/s"


def test_a_block_has_each_arm_once_in_each_condition_one_after_the_other():
    for block in range(50):
        slots = order.slots(SECRET, block, ["left", "right"], ["a", "b", "c"])
        assert [slot.number for slot in slots] == list(range(block * 6 + 1, block * 6 + 7))
        for part in (slots[:3], slots[3:]):
            assert len({slot.condition for slot in part}) == 1
            assert {slot.arm for slot in part} == {"a", "b", "c"}
            assert {slot.code for slot in part} == {"A", "B", "C"}


def test_neither_the_place_nor_the_letter_tells_the_arm():
    first, letters = collections.Counter(), collections.Counter()
    for block in range(1000):
        slots = order.slots(SECRET, block, ["left"], ["old", "new"])
        first[slots[0].arm] += 1
        letters[slots[0].arm, slots[0].code] += 1
    assert 430 < first["old"] < 570  # 4.4 standard deviations
    assert all(190 < count < 310 for count in letters.values())
    assert len(letters) == 4


def test_an_invalid_trial_is_played_again_at_the_end_of_its_block_and_counted(folder):
    with hold(folder) as record:
        arm = record.state.turn.slot.arm
        record.invalid("1", {"id": "answer-x1", "reason": "the camera fell"})
        for number in range(3):
            answer(record, number, success=True)
        assert (record.state.num_blocks, record.state.turn.id) == (0, "1.2")
        assert record.state.turn.slot.arm == arm
        answer(record, 9, success=False)
        assert (record.state.num_blocks, record.state.turn.id) == (1, "5")
        evaluation = evaluation_of(record, next(a for a in record.plan.arms if a.name == arm))
        assert evaluation.mean_metrics()["invalid"] == 0.5  # one in two trials
        assert "1 invalid: the camera fell" in text(record)
        assert "if they all had failed: 0.333" in text(record)  # 1 of 3


def test_an_intervention_is_a_failure_unless_the_protocol_says_otherwise(folder, tmp_path):
    with hold(folder) as record:
        answer(record, 1, success=True, interventions=1, steps=["reach", "open"])
        trial = record.state.trials[0]
        assert progress(trial, PROTOCOL) == 0.75  # 3 of 4 points
        for number in range(2, 5):
            answer(record, number, success=True)
        solved = [evaluation_of(record, arm).overall.successes for arm in record.plan.arms]
    assert sorted(solved) == [1, 2]
    lenient = PROTOCOL.replace(intervention_fails=False, rubric={})
    assert lenient.base_hash != PROTOCOL.base_hash
    assert progress(trial, lenient) == 1.0  # the last of three stages


def test_an_answer_that_is_undone_stays_in_the_record(folder):
    with hold(folder) as record:
        answer(record, 1, success=True)
        with pytest.raises(ConflictError, match="trial 2 is not the one that was answered last"):
            record.undo("2", {"id": "undo-0001"})
        record.undo("1", {"id": "undo-0001"})
        with pytest.raises(ConflictError, match="was undone already"):
            record.undo("1", {"id": "undo-0002"})
        record.score("1", {"id": "answer-0b", "success": False})
        assert [t.answer["success"] for t in record.state.trials] == [False]
    events = [line["event"] for line in Record(folder).lines]
    assert events == ["begin", "played", "score", "undo", "score"]
    assert Record(folder).lines[2]["success"] is True


@pytest.mark.parametrize("number", range(6))
def test_a_changed_line_is_noticed_by_its_number(folder, number):
    with hold(folder) as record:
        for each in range(2):
            answer(record, each, success=False)
    file = folder / "record.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    line = json.loads(lines[number]) | {"by": "somebody else"}
    file.write_text("".join([*lines[:number], json.dumps(line) + "\n", *lines[number + 1 :]]))
    with pytest.raises(ValueError, match=rf"record.jsonl, line {number + 1}: the record was chang"):
        Record(folder)
    file.write_text("".join(lines[:number] + lines[number + 1 :]))
    if number < len(lines) - 1:  # who cuts off the end cannot be told from a kill
        with pytest.raises(ValueError, match=rf"line {number + 1}: the record was changed"):
            Record(folder)


def test_a_full_disk_confirms_nothing_and_loses_nothing(folder, monkeypatch):
    with hold(folder) as record:
        answer(record, 1, success=False)
        real = os.fsync

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            record.begin("2")
        monkeypatch.setattr(os, "fsync", real)
        assert record.state.begun is None
        answer(record, 2, success=False)
        assert Record(folder).lines == record.lines


def test_a_secret_that_was_not_drawn_is_refused(folder):
    (folder / "order.secret").write_text("6" * 64)
    with pytest.raises(ValueError, match="not the secret that the plan was made with"):
        Record(folder)


def test_an_unknown_study_names_those_that_are_planned(folder):
    with pytest.raises(ValueError, match=r"no study 'x'.*rrf trial new FILE.yaml; planned are: s"):
        Plan.load(folder.with_name("x"))


def test_a_clock_that_is_set_back_gives_no_negative_duration(folder):
    with hold(folder) as record:
        answer(record, 1, success=False)
        trial = record.state.trials[0]
        assert 0 <= trial.duration_s < 60
    late = trial.__class__(trial.turn, trial.answer, trial.ended, "2020-01-01T00:00:00+00:00", ())
    assert late.duration_s == 0.0


def test_a_study_that_decides_nothing_ends_after_its_last_block(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    study(gate=GATE.replace(looks=[6]))
    with hold(tmp_path / "trials/s") as record:
        play(record, {"old": 0.6, "new": 0.6})
        assert record.state.num_blocks == 6
        assert standing(record).verdicts["new"].outcome == "fail"  # undecided at the end
