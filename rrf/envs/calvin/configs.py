"""The config of CALVIN. Imports no simulator."""

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.calvin.tasks import CHAIN, INSTRUCTIONS, NUM_CHAINS
from rrf.envs.foreign.configs import ForeignVecEnvCfg

CAMERAS = ("static", "gripper")


@configclass
class CalvinCfg(ForeignVecEnvCfg):
    """CALVIN's table with a Panda arm, in parallel slots.

    A state is CALVIN's `robot_obs`: place (m) and Euler angles (rad) of the hand, width of the
    gripper (m), seven joints (rad), and the last command of the gripper. An action is its
    `rel_actions`: 1 moves the goal of the hand by 2 cm, or 0.05 rad, in a control step, and a
    positive last number opens the gripper. See `docs/how-to/calvin.md`.
    """

    simulator: typing.ClassVar[str] = "CALVIN"
    packages: typing.ClassVar[tuple[str, ...]] = ("calvin-env", "pybullet")
    interpreter: typing.ClassVar[str] = "calvin"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Calvin"
    instructions: typing.ClassVar[Mapping[str, str]] = INSTRUCTIONS
    has_stages: typing.ClassVar[bool] = True
    state_names: typing.ClassVar[tuple[str, ...]] = (
        *("tcp_x", "tcp_y", "tcp_z", "tcp_rx", "tcp_ry", "tcp_rz", "gripper_width"),
        *(f"joint_{number}" for number in range(1, 8)),
        "gripper_action",
    )
    action_names: typing.ClassVar[tuple[str, ...]] = (
        *("dx", "dy", "dz", "drx", "dry", "drz"),
        "gripper",
    )
    control_hz: typing.ClassVar[int] = 30
    has_expert: typing.ClassVar[bool] = True
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {"robot_obs": 15}

    max_episode_steps: int = 360
    """Horizon in actions, of each instruction."""
    cameras: list[str] = list(CAMERAS)
    """Camera names; empty for no images."""
    scene: typing.Literal["A", "B", "C", "D"] = "D"
    """Which of the four tables. The chains, and the places of drawn starts, are those of D."""
    later_starts: float = 0.5
    """Share of the initial states of single tasks in which the expert has done another task first:
    the hand is then where that task ends."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.later_starts <= 1:
            raise ValueError(f"later_starts={self.later_starts} must lie in 0..1")

    @property
    def tasks(self) -> Sequence[str]:
        return (*INSTRUCTIONS, CHAIN)

    @property
    def expert_tasks(self) -> Sequence[str]:
        return tuple(INSTRUCTIONS)

    @property
    def num_initial_states(self) -> int:
        return NUM_CHAINS

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Calvin`."""
        return {
            "scene": self.scene,
            "control_hz": self.control_hz,
            "action_repeat": self.action_repeat,
            "image_size": self.image_size,
            "later_starts": self.later_starts,
        }
