"""The toy simulator, as data. Imports no simulator."""

import typing
from collections.abc import Sequence

from rrf.config import configclass
from rrf.envs.configs import VecEnvCfg

INSTRUCTIONS = {"reach-red": "go to the red square", "reach-blue": "go to the blue square"}


@configclass(builds=f"{__package__}.env:ToyVecEnv")
class ToyCfg(VecEnvCfg):
    """Two squares and a dot, seen from above."""

    simulator: typing.ClassVar[str] = "toy"
    has_expert: typing.ClassVar[bool] = True

    image_size: int = 16
    """Height and width of the images in pixels."""
    cameras: list[str] = ["top"]
    """The one camera, or none for no images."""

    def __post_init__(self):
        super().__post_init__()
        if not set(self.cameras) <= {"top"}:
            raise ValueError(f"cameras is {self.cameras}, allowed: [top] or []")

    @property
    def action_dim(self) -> int:
        return 2

    @property
    def tasks(self) -> Sequence[str]:
        return tuple(INSTRUCTIONS)

    @property
    def num_initial_states(self) -> int:
        return 1000
