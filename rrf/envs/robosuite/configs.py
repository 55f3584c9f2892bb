"""The config of robosuite. Imports no simulator."""

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.child_path.rrf_child.shifts import split
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.rendering.gl_platform import variables_of_robosuite
from rrf.envs.vec_env import InitialState
from rrf.envs.wording import WORDINGS, wording

INSTRUCTIONS = {
    "Lift": "lift the red cube",
    "Stack": "put the red cube on the green cube",
    "Can": "put the can into the bin",
    "Bread": "put the bread into the bin",
    "Cereal": "put the cereal box into the bin",
    "Milk": "put the milk carton into the bin",
    "Door": "open the door",
    "NutSquare": "put the square nut on the peg",
    "NutRound": "put the round nut on the peg",
}
"""Task -> instruction. The names are robosuite's without `PickPlace` and `Assembly`."""
SHIFTS: dict[str, str] = {
    "camera": "the scene's cameras up to 10 cm away along each axis and the hand's up to 1 cm, "
    "turned by up to 5 degrees",
    "light": "the lamp at 0.2 to 2.2 times its brightness, tinted, and from elsewhere",
    "texture": "table or bins, walls and floor in plain colours",
    "distractors": "four things at the sides of the table, which nothing touches",
    "start": "each joint of the arm up to 0.08 rad elsewhere, so the hand some centimetres",
    **WORDINGS,
}
"""What stands behind the @ of a task -> what differs."""
CAMERAS = ("agentview", "robot0_eye_in_hand", "frontview", "birdview")
CONTROLLERS = ("OSC_POSE", "OSC_POSITION")
_GL = ("egl", "osmesa")
_MAX_IDLE = 2  # scenes kept beside those that run; loading one takes a second, keeping it 0.3 GB


@configclass
class RobosuiteCfg(ForeignVecEnvCfg):
    """Tasks of robosuite with a Panda arm, in parallel slots.

    A state is the place of the gripper in metres, its orientation as a quaternion with x >= 0, and
    the places of the two fingers in metres. An action of 1 moves the controller's goal by 5 cm, or
    0.5 rad, in a control step, in the frame of the robot's base. A positive last number closes the
    gripper.
    """

    simulator: typing.ClassVar[str] = "robosuite"
    packages: typing.ClassVar[tuple[str, ...]] = ("mujoco", "robosuite")
    interpreter: typing.ClassVar[str] = "robosuite"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Robosuite"
    instructions: typing.ClassVar[Mapping[str, str]] = INSTRUCTIONS
    can_ignore_terminations: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("controller",)
    state_names: typing.ClassVar[tuple[str, ...]] = (
        *("eef_x", "eef_y", "eef_z", "eef_qx", "eef_qy", "eef_qz", "eef_qw"),
        *("left_finger", "right_finger"),
    )
    control_hz: typing.ClassVar[int] = 20
    has_expert: typing.ClassVar[bool] = True
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {
        "eef_pos": 3,
        "eef_quat": 4,
        "gripper_qpos": 2,
    }

    max_episode_steps: int = 100
    """Horizon in actions."""
    cameras: list[str] = ["agentview"]
    """Camera names; empty for no images."""
    controller: str = "OSC_POSE"
    """OSC_POSE (dx, dy, dz, three rotations, gripper) or OSC_POSITION (dx, dy, dz, gripper), which
    keeps the hand as it is."""
    shadows: bool = False
    """Whether images have shadows, reflections and smooth edges. On a CPU they cost half of the
    time of an image."""
    gl: str = "egl"
    """What draws without a screen: egl or osmesa. `renderer` is not used."""

    def __post_init__(self):
        super().__post_init__()
        for name, known in (("controller", CONTROLLERS), ("gl", _GL)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} is '{value}', allowed: {', '.join(known)}")

    @property
    def tasks(self) -> Sequence[str]:
        return (*INSTRUCTIONS, *(f"{task}@{shift}" for shift in SHIFTS for task in INSTRUCTIONS))

    def instruction(self, task: str) -> str:
        """See `ForeignVecEnvCfg.instruction`; of robosuite's own task."""
        return INSTRUCTIONS[split(task)[0]]

    def worded(self, task: str, state: InitialState) -> str:
        """See `ForeignVecEnvCfg.worded`."""
        return wording(state, self.instruction(task))

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the dimensions of an action."""
        rotation = ("drx", "dry", "drz") if self.controller == "OSC_POSE" else ()
        return ("dx", "dy", "dz", *rotation, "gripper")

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Robosuite`."""
        return {
            "controller": self.controller,
            "control_hz": self.control_hz,
            "image_size": self.image_size,
            "has_images": bool(self.cameras),
            "shadows": self.shadows,
            "max_loaded": self.num_envs + _MAX_IDLE,
        }

    @property
    def variables(self) -> dict[str, str]:
        """What chooses the library that draws."""
        return variables_of_robosuite(self.gl)
