"""How far long work is, in a log file."""

from rrf.cli import data_display


def test_a_log_has_a_line_at_once_now_and_then_and_at_the_end(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(data_display.time, "monotonic", lambda: now)
    with data_display.progress_bars("recording", "clips") as bars:
        assert capsys.readouterr().out == ""
        for done in range(1, 41):
            now += 1.0
            bars["recording"](done, 40, f"{10 * done} frames")
            if done == 1:
                assert capsys.readouterr().out == "recording: 1 of 40 (10 frames)\n"
        bars["clips"](0, 3, "")
    assert capsys.readouterr().out.splitlines() == [
        "recording: 32 of 40 (320 frames)",
        "recording: 40 of 40 (400 frames)",
        "clips: 0 of 3",
    ]
