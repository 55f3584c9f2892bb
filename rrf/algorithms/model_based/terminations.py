"""Rules by which Gymnasium's tasks end their episodes, as functions of the state after a step.

They hold for the tasks' default arguments. `LearnedDynamics` compares them with what it observes.

Legend: B batch, O observation width.
"""

from collections.abc import Callable

import torch

Rule = Callable[[torch.Tensor], torch.Tensor]
"""Maps states [B, O] to bool [B]: the episode ends there."""
_MAX_STATE = 100.0  # Hopper: no coordinate or velocity may be larger


def never(x_bo: torch.Tensor) -> torch.Tensor:
    """The task goes on until its time limit."""
    return torch.zeros_like(x_bo[:, 0], dtype=torch.bool)


def _inverted_pendulum(x_bo: torch.Tensor) -> torch.Tensor:
    return x_bo[:, 1].abs() > 0.2


def _hopper(x_bo: torch.Tensor) -> torch.Tensor:
    height, angle = x_bo[:, 0], x_bo[:, 1]
    is_healthy = (height > 0.7) & (angle.abs() < 0.2) & (x_bo[:, 1:].abs() < _MAX_STATE).all(1)
    return ~is_healthy


def _walker2d(x_bo: torch.Tensor) -> torch.Tensor:
    height, angle = x_bo[:, 0], x_bo[:, 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


def _ant(x_bo: torch.Tensor) -> torch.Tensor:
    return ~((x_bo[:, 0] >= 0.2) & (x_bo[:, 0] <= 1.0))


def _humanoid(x_bo: torch.Tensor) -> torch.Tensor:
    return ~((x_bo[:, 0] > 1.0) & (x_bo[:, 0] < 2.0))


def _mountain_car(x_bo: torch.Tensor) -> torch.Tensor:
    return (x_bo[:, 0] >= 0.45) & (x_bo[:, 1] >= 0)


RULES: dict[str, Rule] = {
    "Pendulum-v1": never,
    "MountainCarContinuous-v0": _mountain_car,
    "InvertedPendulum-v5": _inverted_pendulum,
    "HalfCheetah-v5": never,
    "Swimmer-v5": never,
    "Reacher-v5": never,
    "Pusher-v5": never,
    "Hopper-v5": _hopper,
    "Walker2d-v5": _walker2d,
    "Ant-v5": _ant,
    "Humanoid-v5": _humanoid,
}
"""Task -> its rule."""
