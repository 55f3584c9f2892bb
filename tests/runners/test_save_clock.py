"""Checkpoints out of turn: how often, and that no training is without them."""

from types import SimpleNamespace

import pytest

from rrf.runners import save_clock
from rrf.runners.checkpoints import checkpoint
from tests.runners.control import test_on_policy_runner as control
from tests.runners.supervised import test_supervised_runner as supervised
from tests.runners.supervised.conftest import tiny_run_cfg, write_synthetic
from tests.runners.vla_rl import conftest as vla_rl


def test_a_checkpoint_is_due_after_ten_minutes_or_when_saving_took_a_twentieth(monkeypatch):
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(save_clock, "time", SimpleNamespace(monotonic=lambda: now.s))
    clock = save_clock.SaveClock()

    def save(seconds: float) -> None:
        with clock.saving():
            now.s += seconds

    def due_after() -> float:
        begin = now.s
        while not clock.is_due():
            now.s += 1
        return now.s - begin

    assert due_after() == 600
    save(seconds=10)
    assert due_after() == 600
    save(seconds=60)
    assert due_after() == 1200


@pytest.fixture
def always(monkeypatch):
    """Every checkpoint is too old at once."""
    monkeypatch.setattr(save_clock, "EVERY_S", 0.0)
    monkeypatch.setattr(save_clock, "_SHARE", 0)


class KilledError(Exception):
    """Ends a run at any moment, as a kill does: nothing is saved any more."""


def kill_at(number: int, field: str):
    """A display of progress that kills a run when it has reached this number."""

    def show(progress):
        if getattr(progress, field) == number:
            raise KilledError

    return show


def test_imitation_is_saved_out_of_turn_and_learns_the_same(tmp_path, always):
    dataset = write_synthetic(tmp_path / "dataset", num_episodes=8)
    cfg = tiny_run_cfg(dataset, max_steps=6, save_interval=100, log_interval=1)
    with pytest.raises(KilledError):
        supervised.train(cfg, tmp_path / "killed", on_progress=kill_at(4, "step"))
    assert checkpoint.latest(tmp_path / "killed").name == "global_step_3"
    runners = [supervised.train(cfg, tmp_path / name) for name in ("killed", "whole")]
    supervised.assert_same_bits(*runners)


def test_control_is_saved_out_of_turn_and_learns_the_same(tmp_path, always, monkeypatch):
    cfg = control.run_cfg(save_interval=100, log_interval=1)
    with pytest.raises(KilledError):
        cfg.build(tmp_path / "killed").run(on_progress=kill_at(4, "iteration"))
    assert checkpoint.latest(tmp_path / "killed").name == "global_step_3"
    resumed = cfg.build(tmp_path / "killed").run()
    monkeypatch.setattr(save_clock, "EVERY_S", 600.0)
    control.assert_same(
        control.weights(resumed), control.weights(cfg.build(tmp_path / "whole").run())
    )


@pytest.mark.parametrize(("is_always", "saved"), [(False, 1), (True, 2)])
def test_rounds_are_saved_after_the_first_and_out_of_turn(tmp_path, monkeypatch, is_always, saved):
    if is_always:
        monkeypatch.setattr(save_clock, "EVERY_S", 0.0)
        monkeypatch.setattr(save_clock, "_SHARE", 0)
    cfg = vla_rl.runner_cfg(save_interval=100, validation_interval=100)
    with pytest.raises(KilledError):
        vla_rl.build(cfg, tmp_path).run(on_progress=kill_at(2, "round"))
    assert checkpoint.latest(tmp_path).name == f"global_step_{saved}"
