"""Recorded oscillators whose velocity is seen every 10 steps."""

import torch

INTERVAL, DT = 10, 0.1


def oscillators(num_steps: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Observations [T, B, 5] as `SlowSensorEnvCfg` lays them out: position, the velocity seen last,
    action before, is seen, age. Each oscillator starts at random, and so does its sensor."""
    position, velocity = torch.randn(2, count, generator=generator)
    phase = torch.randint(INTERVAL, (count,), generator=generator)
    held, action = velocity, torch.zeros(count)
    age, was_seen, rows = torch.zeros(count), torch.ones(count), []
    for t in range(num_steps):
        is_seen = ((t + phase) % INTERVAL == 0).float() if t else torch.ones(count)
        age = (1 - was_seen) * age + 1 / INTERVAL if t else age
        held, was_seen = torch.where(is_seen > 0, velocity, held), is_seen
        rows.append(torch.stack([position, held, action, is_seen, age], -1))
        action = torch.rand(count, generator=generator) * 2 - 1
        velocity = velocity + DT * (action - position)
        position = position + DT * velocity
    return torch.stack(rows)
