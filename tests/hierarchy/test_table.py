"""Three systems at the table of the simulated G1, by the command that users type."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.hierarchy import film
from rrf.hierarchy.combination import hierarchy_of
from tests.waiting import wait_for


def test_a_combination_is_played_at_the_rates_of_its_evaluation(at_table):
    cfg = hierarchy_of(at_table)
    assert (cfg.system2.hz, cfg.system1.hz, cfg.system0.hz, cfg.chunk_hz) == (1.0, 2.0, 50.0, 10.0)
    assert cfg.system0.policy == str(at_table / "system0")


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["--no-real-time", "--real-time"])
def test_the_command_plays_logs_and_films(at_table, tmp_path, clock):
    video, log = tmp_path / "walk.mp4", tmp_path / "log.jsonl"
    words = ["hierarchy", str(at_table), "--task", "walk-to-table", "--seconds", "1", clock]
    words += ["--video", str(video), "--log", str(log)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "50 ticks" in done.output
    assert video.stat().st_size > 1000
    assert json.loads(log.read_text().splitlines()[0])["event"] == "begin"


def test_an_unknown_task_is_named(at_table, tmp_path):
    done = CliRunner().invoke(app, ["hierarchy", str(at_table), "--task", "pick-red-cub"])
    assert done.exit_code != 0
    assert "pick-red-cube" in str(done.exception)


@pytest.mark.slow
def test_a_combination_is_played_on_the_clock_and_filmed_with_its_signals(at_table, tmp_path):
    video = tmp_path / "walk.mp4"
    words = ["play", str(at_table), "--task", "walk-to-table", "--seconds", "0.5"]
    done = CliRunner().invoke(app, [*words, "--video", str(video)], catch_exceptions=False)
    assert "25 ticks" in done.output
    assert video.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is a combination of three systems; name its --task"),
        (["--task", "pick-red-cube", "--size", "64"], "--size: .* with --protocol it is played as"),
        (["--task", "pick-red-cub"], "did you mean 'pick-red-cube'"),
        (["--task", "pick-red-cube", "--index", "1000"], "has no initial state 1000"),
    ],
)
def test_what_a_combination_cannot_be_played_with_is_named(at_table, tmp_path, words, message):
    video = ["--video", str(tmp_path / "a.mp4")]
    done = CliRunner().invoke(app, ["play", str(at_table), *words, *video])
    with pytest.raises(ValueError, match=message):
        raise done.exception or AssertionError(done.output)


def test_only_a_combination_is_played_in_real_time(system0):
    done = CliRunner().invoke(app, ["play", str(system0), "--real-time"])
    assert "--real-time: only of a combination" in str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("system", [2, 1, 0])
def test_killing_a_process_of_the_command_ends_in_a_safe_stop_that_is_logged(
    at_table, tmp_path, system
):
    log = tmp_path / "log.jsonl"

    def events() -> dict[str, dict]:
        lines = log.read_text().splitlines() if log.exists() else []
        return {event["event"]: event for event in map(json.loads, lines)}

    words = ["play", str(at_table), "--task", "pick-red-cube", "--real-time", "--seconds", "5"]
    command = [sys.executable, "-m", "rrf.cli", *words, "--log", str(log)]
    playing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        pid = wait_for(lambda: events().get("processes"))[f"system{system}"]
        os.kill(pid, signal.SIGKILL)
        said, _ = playing.communicate(timeout=300)
    finally:
        playing.kill()
    reason = f"System {system} (pid {pid}) died"
    assert reason in events()["stop"]["reason"]
    assert playing.returncode == 0
    assert "250 ticks" in said  # the clock went on, and the robot stood
    assert reason in " ".join(said.split())


def test_a_film_is_drawn_when_the_run_is_over(at_table, tmp_path, monkeypatch):
    """Between ticks a picture makes the next ones late."""
    looks, drawn = [], []
    look, panel = film.Film.look, film.panel
    monkeypatch.setattr(film.Film, "look", lambda *of: looks.append(len(drawn)) or look(*of))
    monkeypatch.setattr(film, "panel", lambda *of: drawn.append(of) or panel(*of))
    video = tmp_path / "walk.mp4"
    words = ["play", str(at_table), "--task", "walk-to-table", "--seconds", "0.4"]
    CliRunner().invoke(app, [*words, "--video", str(video)], catch_exceptions=False)
    assert looks == [0] * 20
    assert len(drawn) == 4
    assert not np.array_equal(drawn[0][0].joints_29, drawn[-1][0].joints_29)
    assert video.stat().st_size > 1000
