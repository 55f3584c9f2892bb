"""The pusher, as data. Imports no simulator."""

import typing
from collections.abc import Sequence

from rrf.config import configclass
from rrf.envs.configs import VecEnvCfg

INSTRUCTIONS = {"push-red": "push the red cube", "push-blue": "push the blue cube"}


@configclass(builds=f"{__package__}.env:PusherVecEnv")
class PusherCfg(VecEnvCfg):
    """A table with two cubes, and a hand that slides over it."""

    simulator: typing.ClassVar[str] = "pusher"
    has_expert: typing.ClassVar[bool] = True
    control_hz: typing.ClassVar[int] = 10
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {"hand": 2}

    max_episode_steps: int = 16
    """Horizon in actions."""
    image_size: int = 32
    """Height and width of the images in pixels."""
    cameras: list[str] = ["front"]
    """The one camera, or none for no images."""

    def __post_init__(self):
        super().__post_init__()
        if not set(self.cameras) <= {"front"}:
            raise ValueError(f"cameras is {self.cameras}, allowed: [front] or []")
        if self.control_hz % self.action_repeat:
            raise ValueError(f"action_repeat={self.action_repeat} must divide {self.control_hz}")

    @property
    def action_dim(self) -> int:
        return 2

    @property
    def tasks(self) -> Sequence[str]:
        return tuple(INSTRUCTIONS)

    @property
    def num_initial_states(self) -> int:
        return 1000
