"""What training shows while it runs: a line per log, or a table of the last iterations."""

import io
import warnings
from types import SimpleNamespace

from rich.console import Console

from rrf.cli import control_training, dataset_training, evaluation
from rrf.cli.trainings import training_of
from rrf.presets import resolve
from rrf.runners.control.loop import ControlProgress

METRICS = {
    "rollout/return": 12.3456,
    "rollout/length": 199.6,
    "perf/steps_per_s": 5432.1,
    "policy/kl": 0.01234,
    "train/learning_rate": 0.00066,
    "policy/std": 0.75,
    "loss/value": 0.1234,
    "env/Metrics/twist/error_vel_xy": 0.2,
}


def progress(iteration: int, metrics=METRICS) -> ControlProgress:
    return ControlProgress(iteration, 300, iteration * 12288, 5432.1, 3725.0, metrics)


def test_a_line_holds_what_there_is():
    assert control_training.line(progress(7)) == (
        "iteration 7/300 86016 steps return 12.35 length 200 steps/s 5432 kl 0.0123 lr 6.6e-04 "
        "std 0.750 value loss 0.123 eta 1:02:05"
    )
    assert control_training.line(progress(1, {"policy/alpha": 0.25})) == (
        "iteration 1/300 12288 steps alpha 0.25 eta 1:02:05"
    )


def test_a_terminal_shows_a_table_of_the_last_iterations_and_warnings_above_it(monkeypatch):
    screen = io.StringIO()

    def terminal():
        return Console(file=screen, force_terminal=True, width=120, color_system=None)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("rich.console.Console", terminal)
    with control_training.shown(resolve("go1-flat-ppo")) as on_progress:
        for iteration in range(1, 31):
            on_progress(progress(iteration))
        warnings.warn("[the] mean return fell", stacklevel=1)
    shown = screen.getvalue()
    assert "warning: [the] mean return fell" in shown
    last = shown[shown.rindex("go1-flat-ppo: iteration 30/300, 368640 steps, eta 1:02:05") :]
    rows = [row.split("│")[1:-1] for row in last.splitlines() if row.startswith("│")]
    assert [row[0].strip() for row in rows] == [str(i) for i in range(19, 31)]
    assert [cell.strip() for cell in rows[-1][1:]] == [
        *("12.35", "200", "5432", "0.0123", "6.6e-04", "0.750", "0.123")
    ]


def test_a_log_gets_lines_and_warnings_without_their_place_in_the_code(capsys):
    with control_training.shown(resolve("go1-flat-ppo")) as on_progress:
        on_progress(progress(1))
        warnings.warn("new episodes have begun", stacklevel=1)
    captured = capsys.readouterr()
    assert captured.out.startswith("iteration 1/300 12288 steps return 12.35")
    assert captured.err == "warning: new episodes have begun\n"


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("rich.console.Console", lambda: Console(force_terminal=True))
    with control_training.shown(None) as on_progress:
        on_progress(progress(1))
    assert capsys.readouterr().out.startswith("iteration 1/300 ")
    with evaluation.showing("go1", 1) as on_episode:
        on_episode(SimpleNamespace(success=True), 1, 1)
    assert capsys.readouterr().out == "episode 1/1 success 100.0%\n"
    known: list = [SimpleNamespace(success=True), SimpleNamespace(success=False)]
    with evaluation.showing("go1", 3, known) as on_episode:
        on_episode(SimpleNamespace(success=True), 3, 3)
    assert capsys.readouterr().out == "episode 3/3 success 66.7%\n"
    with training_of(resolve("compact-vla-sft")).shown() as on_progress:
        numbers = {"loss": 0.5, "validation_loss": None, "learning_rate": 1e-3}
        on_progress(SimpleNamespace(step=1, max_steps=2, samples_per_s=9.0, eta_s=60.0, **numbers))
    assert capsys.readouterr().out.startswith("step 1/2 loss 0.5000")
    with dataset_training.shown(None) as on_progress:
        metrics = {"env/success_once": 0.5, "actor/approx_kl": 0.01}
        times = {"episodes_per_s": 1.0, "eta_s": 60.0}
        on_progress(
            SimpleNamespace(
                round=1, max_rounds=2, episodes=8, validation=None, metrics=metrics, **times
            )
        )
    assert capsys.readouterr().out.startswith("round 1/2 8 episodes success 50.0%")
