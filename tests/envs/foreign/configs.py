"""The configs of the simulators of plain NumPy. Policies of Meta-World fit the dots."""

import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignControlEnvCfg, ForeignVecEnvCfg


@configclass
class DotsCfg(ForeignVecEnvCfg):
    simulator: typing.ClassVar[str] = "dots"
    has_expert: typing.ClassVar[bool] = True
    interpreter: typing.ClassVar[str] = "dots"
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Dots"
    can_ignore_terminations: typing.ClassVar[bool] = True
    state_names: typing.ClassVar[tuple[str, ...]] = ("a", "b", "c", "d")
    control_hz: typing.ClassVar[int] = 10

    image_size: int = 32
    cameras: list[str] = ["corner2"]
    max_episode_steps: int = 5

    @property
    def action_dim(self) -> int:
        return 4

    @property
    def tasks(self) -> Sequence[str]:
        return ("drawer-open-v3", "window-open-v3")

    @property
    def num_initial_states(self) -> int:
        return 50

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        return {"size": self.image_size}

    def instruction(self, task: str) -> str:
        return "Open a drawer"


@configclass
class PointsCfg(ForeignControlEnvCfg):
    simulator: typing.ClassVar[str] = "points"
    interpreter: typing.ClassVar[str] = "dots"
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "points.py"
    simulator_class: typing.ClassVar[str] = "Points"
    packages: typing.ClassVar[tuple[str, ...]] = ("numpy",)
    timeout_s: typing.ClassVar[float] = 3.0

    task: str = "Points"
    trouble_at: list[typing.Any] | None = None
    """What goes wrong, and at which step."""

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        return {"task": self.task, "trouble_at": self.trouble_at}


@configclass
class ErrandsCfg(DotsCfg):
    """Three tasks in a row."""

    simulator_class: typing.ClassVar[str] = "Errands"
    has_stages: typing.ClassVar[bool] = True

    @property
    def tasks(self) -> Sequence[str]:
        return ("chain", "first", "second", "third")

    def instruction(self, task: str) -> str:
        return f"do the {task}"
