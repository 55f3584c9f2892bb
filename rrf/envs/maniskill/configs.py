"""The config of ManiSkill3. Imports no simulator."""

import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignVecEnvCfg

INSTRUCTIONS = {
    "PickCube-v1": "pick up the red cube and hold it at the green ball",
    "PushCube-v1": "push the blue cube onto the target",
    "PullCube-v1": "pull the blue cube onto the target",
    "StackCube-v1": "put the red cube on the green cube",
    "LiftPegUpright-v1": "put the peg upright",
    "PlaceSphere-v1": "put the blue ball into the bin",
    "PokeCube-v1": "poke the cube with the peg",
    "PullCubeTool-v1": "pull the cube closer with the tool",
    "RollBall-v1": "roll the ball onto the target",
}
"""Task -> instruction. The names are ManiSkill's."""
CAMERAS = ("base_camera", "hand_camera", "workspace")
CONTROLLERS = ("pd_ee_delta_pos", "pd_ee_delta_pose")


@configclass
class ManiskillCfg(ForeignVecEnvCfg):
    """Tabletop tasks of ManiSkill3 with a Panda arm, in parallel slots, on the CPU.

    A state is the place of the tool centre point in metres in the frame of the scene, its
    orientation as a quaternion with x >= 0, and the places of the two fingers in metres. An action
    of 1 moves the hand by 10 cm, or turns it by 0.1 rad, in a control step, in the frame of the
    robot's base. A positive last number opens the gripper.
    """

    simulator: typing.ClassVar[str] = "ManiSkill"
    packages: typing.ClassVar[tuple[str, ...]] = ("mani-skill", "sapien")
    interpreter: typing.ClassVar[str] = "maniskill"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Maniskill"
    instructions: typing.ClassVar[Mapping[str, str]] = INSTRUCTIONS
    can_ignore_terminations: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("controller", "shows_goal")
    has_expert: typing.ClassVar[bool] = True
    state_names: typing.ClassVar[tuple[str, ...]] = (
        *("tcp_x", "tcp_y", "tcp_z", "tcp_qw", "tcp_qx", "tcp_qy", "tcp_qz"),
        *("left_finger", "right_finger"),
    )
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {
        "tcp_pos": 3,
        "tcp_quat": 4,
        "gripper_qpos": 2,
    }
    control_hz: typing.ClassVar[int] = 20

    max_episode_steps: int = 50
    """Horizon in actions."""
    cameras: list[str] = ["base_camera"]
    """Camera names; empty for no images. `renderer` is not used."""
    controller: str = "pd_ee_delta_pos"
    """pd_ee_delta_pos (dx, dy, dz, gripper) or pd_ee_delta_pose (dx, dy, dz, three rotations,
    gripper)."""
    shows_goal: bool = True
    """Whether images show goals that ManiSkill hides from cameras (the ball of PickCube). Nothing
    else tells the policy where such a goal is."""

    def __post_init__(self):
        super().__post_init__()
        if self.controller not in CONTROLLERS:
            raise ValueError(
                f"controller is '{self.controller}', allowed: {', '.join(CONTROLLERS)}"
            )

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the dimensions of an action."""
        rotation = ("drx", "dry", "drz") if self.controller == "pd_ee_delta_pose" else ()
        return ("dx", "dy", "dz", *rotation, "gripper")

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Maniskill`."""
        return {
            "controller": self.controller,
            "cameras": list(self.cameras),
            "image_size": self.image_size,
            "shows_goal": self.shows_goal,
        }

    @property
    def variables(self) -> dict[str, str]:
        """The thread that asks for an image draws it: other slots' processes have the cores."""
        return {"LP_NUM_THREADS": "0"}


@configclass
class ManiskillGpuCfg(ManiskillCfg):
    """The same tasks, all slots of a task in one batched environment on a GPU."""

    simulator_class: typing.ClassVar[str] = "BatchedManiskill"
    is_batched: typing.ClassVar[bool] = True
    has_expert: typing.ClassVar[bool] = False

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.BatchedManiskill`."""
        inherited = super().simulator_arguments
        del inherited["cameras"]  # which batched simulators are given anyway
        return {**inherited, "num_envs": self.num_envs, "backend": "physx_cuda"}
