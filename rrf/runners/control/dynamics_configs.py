"""Config of the training of a model of a task's dynamics. This file does not import torch."""

import typing

from rrf.algorithms.model_based.dynamics_configs import (
    DynamicsCfg,
    DynamicsModelCfg,
    MLPDynamicsCfg,
)
from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.runners.control.configs import ControlRunnerCfg
from rrf.runners.control.off_policy_configs import require_dataset


@configclass(builds="rrf.runners.control.dynamics:DynamicsRunner")
class DynamicsRunnerCfg(ControlRunnerCfg):
    """Learning the dynamics of a task from a published dataset of states."""

    loop: typing.ClassVar[str] = "dynamics"

    dataset: str = ""
    """Name of the dataset, or a path. It needs the columns next.reward and next.terminated."""
    env: ControlEnvCfg = GymnasiumEnvCfg(task="Pendulum-v1")
    """The task that was recorded. It is never stepped."""
    policy: DynamicsModelCfg = MLPDynamicsCfg()
    """The model."""
    algorithm: DynamicsCfg = DynamicsCfg()
    """How it learns."""
    updates_per_iteration: int = 1000
    """Gradient steps of an iteration. Open-loop errors are measured after each."""
    holdout_fraction: float = 0.1
    """Fraction of the episodes that only measures errors."""
    horizons: list[int] = [1, 5, 10, 25]
    """Steps after which the error in open loop is measured."""

    def __post_init__(self):
        super().__post_init__()
        if self.updates_per_iteration < 1 or not 0 < self.holdout_fraction < 1:
            raise ValueError(
                f"updates_per_iteration is {self.updates_per_iteration} and holdout_fraction "
                f"{self.holdout_fraction}, allowed: 1 or more, and between 0 and 1"
            )
        if min(self.horizons, default=0) < 1:
            raise ValueError(f"horizons is {self.horizons}, allowed: numbers of 1 or more")

    def require_dataset(self) -> None:
        """Raise ValueError if no dataset is named."""
        require_dataset(self.dataset)
