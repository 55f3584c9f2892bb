"""Who was busy when."""

import time

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.orchestra import timeline_chart
from rrf.runners.vla_rl.timeline import FILE, Layout, Timeline, load
from rrf.runners.vla_rl.workload import PlayedGroup, Workload
from tests.orchestra import toy

LAYOUT = Layout([0, 1], [0], [2, 4])
GROUPS = [PlayedGroup("a", [5, 2]), PlayedGroup("b", [1, 3, 2, 4], instead_of=0)]
WORKLOAD = Workload([2, 4], GROUPS, ["b", "a"])


def test_spans_are_read_as_they_were_written(tmp_path):
    line = Timeline()
    line.add("env 1", "physics", 100.5, 101.0)
    line.add("rollout 0", "inference", 101.25, 101.5)
    line.save(tmp_path, 3, LAYOUT, WORKLOAD)
    saved = load(tmp_path)
    assert (saved.number, saved.layout, saved.workload) == (3, LAYOUT, WORKLOAD)
    found = [(span.process, span.activity, span.begin_s, span.end_s) for span in saved.spans]
    assert found == [("env 1", "physics", 0, 0.5), ("rollout 0", "inference", 0.75, 1.0)]


def test_an_answer_is_shared_by_its_activities():
    line, now = Timeline(), time.time()
    line.add_answer("env 0", (now - 4, now, {"reset": 0.0, "physics": 3.0, "rendering": 1.0}), 0)
    spans = [(span.activity, span.begin_s - now, span.end_s - now) for span in line._spans]
    assert spans == [
        ("physics", pytest.approx(-4), pytest.approx(-1)),
        ("rendering", pytest.approx(-1), pytest.approx(0, abs=1e-5)),
    ]


@pytest.mark.parametrize(("off", "expected"), [(-50, -6), (+50, -2)])
def test_a_machine_whose_clock_is_off_is_moved_between_question_and_answer(off, expected):
    line, now = Timeline(), time.time()
    line.add_answer("env 0", (now + off - 3, now + off - 1, {"physics": 1.0}), now - 6)
    [span] = line._spans
    assert span.begin_s - now == pytest.approx(expected, abs=0.1)
    assert span.end_s - span.begin_s == pytest.approx(2)


def test_the_idle_share_is_what_is_left():
    line = Timeline()
    line.add("env 0", "physics", 0.0, 2.0)
    line.add("env 0", "rendering", 3.0, 4.0)
    line.add("driver", "bookkeeping", 9.0, 10.0)
    found = timeline_chart.shares(list(line._spans))
    assert list(found) == ["env 0", "driver"]
    parts = {"physics": 0.2, "rendering": 0.1, "idle": 0.7}
    assert found["env 0"] == pytest.approx(parts)


@pytest.mark.slow
def test_a_round_is_recorded_and_drawn(tmp_path):
    run = tmp_path / "run"
    cfg = toy.run_cfg(toy.save_parent(tmp_path / "sft"), max_rounds=1)
    cfg.build(run).run()
    saved = load(run)
    layout, spans = saved.layout, saved.spans
    assert saved.number == 1
    assert (list(layout.env), list(layout.rollout)) == ([0, 0], [0])
    found = {(span.process, span.activity) for span in spans}
    assert found == {
        ("env 0", "simulation"),
        ("env 1", "simulation"),
        ("rollout 0", "inference"),
        ("actor", "update"),
        ("driver", "bookkeeping"),
        ("driver", "weight sync"),
    }
    assert all(0 <= span.begin_s <= span.end_s for span in spans)
    [update] = [span for span in spans if span.activity == "update"]
    assert update.end_s == max(span.end_s for span in spans)
    said = CliRunner().invoke(app, ["orchestra", "timeline", str(run)])
    assert said.exit_code == 0, said.output
    assert "env 0: simulation" in said.output
    assert "<svg" in (run / "timeline.svg").read_text()


def test_a_run_without_a_timeline_is_named(tmp_path):
    said = CliRunner().invoke(app, ["orchestra", "timeline", str(tmp_path)])
    assert f"has no {FILE}; give the directory of a run" in str(said.exception)
