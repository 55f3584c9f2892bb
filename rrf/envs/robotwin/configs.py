"""The config of RoboTwin 2.0. Imports no simulator."""

import math
import os
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.robotwin.tasks import ASSETS, BLOCKS, CLOSEST, INSTRUCTIONS

CAMERAS = ("head_camera", "left_camera", "right_camera")
STAND_IN = "rrf-arm"
_ARM = tuple(f"joint_{number}" for number in range(1, 7))


@configclass
class RobotwinCfg(ForeignVecEnvCfg):
    """RoboTwin's table with two arms of six joints, in parallel slots.

    States and actions are RoboTwin's: six joints (rad) and the gripper (0 closed, 1 open) of the
    left arm, then of the right. An action is where the joints go, however long that takes; a state
    is where they were told to be. See `docs/how-to/robotwin.md`.
    """

    simulator: typing.ClassVar[str] = "RoboTwin"
    packages: typing.ClassVar[tuple[str, ...]] = ("mplib", "robotwin", "sapien")
    interpreter: typing.ClassVar[str] = "robotwin"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Robotwin"
    instructions: typing.ClassVar[Mapping[str, str]] = INSTRUCTIONS
    has_expert: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("robot", "apart_m", "shadows", "moves")
    state_names: typing.ClassVar[tuple[str, ...]] = tuple(
        f"{side}_{name}" for side in ("left", "right") for name in (*_ARM, "gripper")
    )
    action_names: typing.ClassVar[tuple[str, ...]] = state_names
    action_limit: typing.ClassVar[float] = 2 * math.pi
    noisy_dimensions: typing.ClassVar[tuple[int, ...]] = (0, 1, 2, 7, 8, 9)  # shoulders and elbows
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {"joint_action": 14}
    control_hz: typing.ClassVar[int] = 1

    max_episode_steps: int = 32
    """Horizon in actions."""
    cameras: list[str] = list(CAMERAS)
    """Camera names; empty for no images."""
    robot: str = STAND_IN
    """Name of a robot of RoboTwin's assets, or of the arm that stands in for them: rrf-arm."""
    apart_m: float | None = 0.6
    """Distance of two robots with an arm each; null for one robot with two arms (aloha-agilex)."""
    scene: typing.Literal["clean", "randomized"] = "clean"
    """RoboTwin's demo_clean, or its demo_randomized: other objects on the table, textures, lights
    and heights, which need its assets."""
    shadows: bool = True
    """Whether images have shadows, as RoboTwin's do. On a CPU they take nearly all the time of an
    image: 45 ms instead of 0.5."""
    moves: typing.Literal["each action", "whole chunk"] = "each action"
    """Whether the arms stop after each action, as in RoboTwin's own evaluation, or move through all
    actions of a chunk at once, as in RLinf's environment; a success then ends the chunk."""
    skips: typing.Literal["unstable", "unsolved"] = "unstable"
    """Which seeds are replaced: those whose objects do not come to rest, as in RLinf's training, or
    those too which the expert does not solve, as in RoboTwin's evaluation. It costs one run of the
    expert per seed, once."""

    def __post_init__(self):
        if self.action_repeat != 1:
            raise ValueError(
                f"action_repeat={self.action_repeat}, but an action of RoboTwin is a whole motion; "
                "set action_repeat=1"
            )
        super().__post_init__()
        if self.apart_m is not None and not 0.2 <= self.apart_m <= 2.0:
            raise ValueError(f"apart_m={self.apart_m} must lie in 0.2..2.0 m, or be null")
        if self.robot == STAND_IN and self.apart_m is None:
            raise ValueError("robot=rrf-arm has one arm; set apart_m=0.6, or another robot")

    @property
    def expert_tasks(self) -> Sequence[str]:
        return BLOCKS if self.assets is None else self.tasks

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Robotwin`."""
        return {
            "robot": self.robot,
            "apart_m": self.apart_m,
            "scene": self.scene,
            "moves": self.moves,
            "skips": self.skips,
            "shadows": self.shadows,
            "cameras": list(self.cameras),
            "image_size": self.image_size,
        }

    @property
    def variables(self) -> dict[str, str]:
        """Where the assets are. The thread that asks for an image draws it: other slots' processes
        have the cores."""
        found = {} if self.assets is None else {"ASSETS_PATH": str(self.assets)}
        return {"LP_NUM_THREADS": "0", **found}

    @property
    def assets(self) -> Path | None:
        """The folder that has RoboTwin's `assets/objects`, by ASSETS_PATH or ROBOTWIN_PATH; None if
        there is none."""
        named = [os.environ.get(name) for name in ("ASSETS_PATH", "ROBOTWIN_PATH")]
        folders = [Path(name).absolute() for name in named if name]
        return next((f for f in folders if (f / "assets/objects/objaverse").is_dir()), None)

    def versions(self, packages: Collection[str]) -> dict[str, str]:
        """See `VecEnvCfg.versions`. Says which assets are missing, too."""
        self._check_assets()
        return super().versions(packages)

    def check_task(self, task: str) -> None:
        """See `VecEnvCfg.check_task`. The objects of a task may be missing here."""
        known = CLOSEST.get(task, task)
        named = task if known == task else f"RoboTwin has no task {task}; {known}"
        if known in INSTRUCTIONS and known not in BLOCKS and self.assets is None:
            raise ValueError(
                f"{named} needs objects of RoboTwin's assets, which are not here: {ASSETS}. Tasks "
                f"without: {', '.join(BLOCKS)}"
            )
        if known != task:
            raise ValueError(f"{named} is what it has")
        super().check_task(task)

    def _check_assets(self) -> None:
        if self.assets is not None:
            return
        if self.robot != STAND_IN:
            raise ValueError(
                f"the robot '{self.robot}' is one of RoboTwin's assets, which are not here: "
                f"{ASSETS}. Without them set robot={STAND_IN}"
            )
        if self.scene == "randomized":
            raise ValueError(
                f"scene=randomized needs RoboTwin's assets, which are not here: {ASSETS}. Without "
                "them set scene=clean"
            )
