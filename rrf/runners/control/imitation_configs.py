"""Config of imitation by reinforcement learning. This file does not import torch."""

import typing

from rrf.algorithms.imitation.configs import GAILCfg
from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg


@configclass(builds="rrf.runners.control.imitation:ImitationRunner")
class ImitationRunnerCfg(OnPolicyRunnerCfg):
    """On-policy training that imitates a published dataset of states. The task's reward is logged,
    but nothing is learned from it."""

    loop: typing.ClassVar[str] = "imitation"

    dataset: str = ""
    """Name of the expert's dataset, or a path. It needs the column next.terminated."""
    num_trajectories: int | None = None
    """Number of the expert's episodes to imitate, drawn with the run's seed; null for all."""
    env: ControlEnvCfg = GymnasiumEnvCfg(task="Hopper-v5", num_envs=8)
    """The task that was recorded."""
    algorithm: GAILCfg = GAILCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_trajectories is not None and self.num_trajectories < 1:
            raise ValueError(
                f"num_trajectories is {self.num_trajectories}, allowed: 1 or more, or null for all "
                "of the dataset; without an expert there is nothing to imitate"
            )

    def require_dataset(self) -> None:
        """Raise ValueError if no dataset is named."""
        if not self.dataset:
            raise ValueError(
                "there are no expert trajectories to imitate; name a published dataset of them: "
                "dataset=NAME"
            )
