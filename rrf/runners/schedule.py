"""Schedules of learning rate and noise. They depend on the step only: resuming needs no state."""

import math

from rrf.runners.configs import ScheduleCfg


def schedule_factor(step: int, max_steps: int, cfg: ScheduleCfg) -> float:
    """The factor on the peak value in update `step` (0 to max_steps - 1).

    The peak is reached at step `warmup_fraction * max_steps` (rounded), and the final factor at the
    last step.
    """
    if cfg.kind == "constant":
        return 1.0
    peak_step = round(cfg.warmup_fraction * max_steps)
    if step < peak_step:
        if cfg.kind == "cosine":
            return (step + 1) / (peak_step + 1)
        return _cosine(cfg.initial_factor, 1.0, step / peak_step)
    return _cosine(1.0, cfg.final_factor, (step - peak_step) / max(max_steps - 1 - peak_step, 1))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
