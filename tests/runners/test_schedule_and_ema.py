"""Learning-rate schedules and weight averaging against values worked by hand."""

import pytest
import torch

from rrf.runners import EMACfg, ScheduleCfg
from rrf.runners.ema import EMA
from rrf.runners.schedule import schedule_factor


def factors(cfg: ScheduleCfg, max_steps: int) -> list[float]:
    return [schedule_factor(step, max_steps, cfg) for step in range(max_steps)]


def test_one_cycle_rises_from_its_initial_factor_to_one_and_falls_to_its_final_factor():
    cfg = ScheduleCfg(kind="one_cycle", warmup_fraction=0.4, initial_factor=0.2, final_factor=0.1)
    # 7 steps, peak at round(2.8) = 3; up: cos at 0, 1/3, 2/3 of pi; down: 0, 1/3, 2/3, 1 of pi
    assert factors(cfg, 7) == pytest.approx([0.2, 0.4, 0.8, 1.0, 0.775, 0.325, 0.1])


def test_cosine_warms_up_linearly():
    cfg = ScheduleCfg(kind="cosine", warmup_fraction=0.5, final_factor=0.0)
    # 6 steps, peak at 3: 1/4, 2/4, 3/4, then cos at 0, 1/2, 1 of pi
    assert factors(cfg, 6) == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.5, 0.0])


def test_constant_is_constant_and_no_warmup_starts_at_the_peak():
    assert factors(ScheduleCfg(kind="constant"), 3) == [1.0, 1.0, 1.0]
    assert factors(ScheduleCfg(kind="cosine", warmup_fraction=0), 3) == pytest.approx([1, 0.5, 0])


def test_a_run_of_one_step_has_a_learning_rate():
    assert factors(ScheduleCfg(kind="cosine", warmup_fraction=0.3), 1) == [1.0]


def test_ema_follows_with_a_decay_that_grows_to_its_limit():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    ema = EMA(module, decay=0.15)
    torch.nn.init.ones_(module.weight)
    ema.update(module)  # decay min(0.15, 1 / 10): 0.1 * 0 + 0.9 * 1
    assert ema.module.weight.item() == pytest.approx(0.9)
    torch.nn.init.zeros_(module.weight)
    ema.update(module)  # decay min(0.15, 2 / 11) = 0.15: 0.15 * 0.9
    assert ema.module.weight.item() == pytest.approx(0.135)


def test_ema_copies_buffers_and_asks_for_no_gradient():
    module = torch.nn.BatchNorm1d(2)
    ema = EMA(module, decay=0.5)
    module.running_mean += 3.0
    ema.update(module)
    assert ema.module.running_mean.tolist() == [3.0, 3.0]
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())


def test_a_decay_of_one_is_refused():
    with pytest.raises(ValueError, match=r"decay is 1.0, allowed: from 0 to below 1"):
        EMACfg(decay=1.0)
