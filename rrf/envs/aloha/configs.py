"""The config of ALOHA. Imports no simulator."""

import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignVecEnvCfg

INSTRUCTIONS = {
    "transfer_cube": "pick up the cube with the right arm and hand it over to the left arm",
    "insertion": "pick up the peg and the socket and put the peg into the socket",
}
"""Task of gym_aloha -> instruction."""
CAMERAS = ("top", "angle", "front_close", "left_pillar", "right_pillar")
DRAWN_BY = ("raster", "egl", "osmesa")
_JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")
_LOW = (-3.14158, -1.85005, -1.76278, -3.14158, -1.8675, -3.14158, 0.0)
_HIGH = (3.14158, 1.25664, 1.6057, 3.14158, 2.23402, 3.14158, 1.0)
_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_MAX_IDLE = 2


@configclass
class AlohaCfg(ForeignVecEnvCfg):
    """gym_aloha's tasks with two arms of type ViperX 300, in parallel slots.

    A state is the joints of the left and the right arm: six in radians and the gripper from 0
    (closed) to 1 (open); with `objects` also the poses of the cube, or of peg and socket. An action
    is where the joints go to: -1 and 1 are their limits. Rewards are those of ACT, from 0 to 4;
    4 is success.

    Initial state i of a seed s is that of gym_aloha's `reset(seed=1000 s + i)`, modulo 2^32.
    """

    simulator: typing.ClassVar[str] = "ALOHA"
    packages: typing.ClassVar[tuple[str, ...]] = ("gym-aloha", "mujoco")
    interpreter: typing.ClassVar[str] = "aloha"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = CAMERAS
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Aloha"
    instructions: typing.ClassVar[Mapping[str, str]] = INSTRUCTIONS
    has_expert: typing.ClassVar[bool] = True
    can_ignore_terminations: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("objects",)
    action_names: typing.ClassVar[tuple[str, ...]] = tuple(
        f"{arm}_{joint}" for arm in ("left", "right") for joint in _JOINTS
    )
    control_hz: typing.ClassVar[int] = 50

    max_episode_steps: int = 400
    """Horizon in actions."""
    image_size: int = 480
    """Height of the images in pixels; their width is four thirds of it."""
    cameras: list[str] = ["top"]
    """Camera names; empty for no images."""
    drawn_by: str = "raster"
    """raster: our rasterizer, which is several times as fast on a CPU and needs no OpenGL. egl or
    osmesa: dm_control's OpenGL, as gym_aloha draws. `renderer` is not used."""
    objects: bool = True
    """Whether a state has the poses of the objects, too. Without, a policy sees them in the images
    only."""
    reward: typing.Literal["progress", "stage"] = "progress"
    """progress: by how much the largest reward of the episode so far has risen, so that the return
    is the largest reward. stage: gym_aloha's own, 0 to 4 in each step."""

    def __post_init__(self):
        super().__post_init__()
        if self.drawn_by not in DRAWN_BY:
            raise ValueError(f"drawn_by is '{self.drawn_by}', allowed: {', '.join(DRAWN_BY)}")
        if self.image_size % 3:
            raise ValueError(
                f"image_size is {self.image_size}, allowed: multiples of 3, since images are four "
                "thirds as wide as high; e.g. 480 or 120"
            )

    @property
    def image_shape(self) -> tuple[int, int]:
        return self.image_size, self.image_size * 4 // 3

    @property
    def state_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the dimensions of a state."""
        places = [f"object_{number}_{part}" for number in (1, 2) for part in _POSE]
        return (*self.action_names, *(places if self.objects else ()))

    @property
    def state_parts(self) -> Mapping[str, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `VecEnvCfg.state_parts`."""
        joints = {"joints": len(self.action_names)}
        return {**joints, **({"objects": 2 * len(_POSE)} if self.objects else {})}

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Aloha`."""
        from rrf.compiled.rasterizer import library  # which needs a C compiler

        is_compiled = self.drawn_by == "raster" and self.cameras
        return {
            "shape": self.image_shape,
            "library": str(library()) if is_compiled else None,
            "objects": self.state_parts.get("objects", 0),
            "reward": self.reward,
            "low": 2 * _LOW,
            "high": 2 * _HIGH,
            "num_initial_states": self.num_initial_states,
            "max_loaded": self.num_envs + _MAX_IDLE,
        }

    @property
    def variables(self) -> dict[str, str]:
        """What chooses the library that draws."""
        gl = "disable" if self.drawn_by == "raster" else self.drawn_by
        return {"MUJOCO_GL": gl, **({} if gl == "disable" else {"PYOPENGL_PLATFORM": gl})}
