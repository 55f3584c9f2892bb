"""The config of mjlab's tasks. Imports no simulator."""

import typing

from rrf.config import configclass, require_at_least_one
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.motions.clip import FRAME_PARTS

SCRIPTED_EXPERTS = ("rrf.envs.mjlab.lifting_expert:LiftingExpert",)
"""Those that rrf has."""


@configclass(builds="rrf.envs.mjlab.env:build")
class MjlabEnvCfg(ControlEnvCfg):
    """A task of mjlab, run by mjlab itself on a GPU and by its terms on native MuJoCo on a CPU."""

    task: str = "Mjlab-Velocity-Flat-Unitree-Go1"
    """mjlab's name of the task."""
    num_envs: int = 512
    """Environments stepped together."""
    backend: typing.Literal["auto", "native", "mjlab"] = "auto"
    """native: MuJoCo's C library on `num_threads` threads; mjlab: mujoco_warp, for GPUs (on a CPU
    it is some 40 times slower); auto: native on a CPU, mjlab on a GPU."""
    physics: typing.Literal["exact", "fast"] = "exact"
    """exact: mjlab's own solver settings; fast: pyramidal friction cones, and half as many steps
    that are twice as long."""
    num_threads: int = 2
    """Threads of the native backend."""
    fresh_contacts: bool = True
    """Native backend: after each step, solve for contact forces once more if observations read
    them, as mjlab does. Otherwise contact forces are those of the last substep, and steps cost a
    fifth less."""
    play: bool = False
    """mjlab's variant for watching: no noise, no pushes, endless episodes."""
    overrides: dict[str, typing.Any] = {}
    """Changes to mjlab's own config by dotted path, e.g. {"rewards.air_time.weight": 1.0}; null
    removes a term."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_threads < 0:
            raise ValueError(
                f"num_threads is {self.num_threads}, allowed: 0 (only the calling thread) or more"
            )

    @property
    def undecided(self) -> str | None:
        if self.backend != "auto":
            return None
        return "env.backend is auto, which simulates differently on a GPU; write native or mjlab"

    @property
    def prefers_gpu(self) -> bool:
        return self.backend == "mjlab"

    def drawable(self) -> typing.Self:
        """The same task on the native backend. Only mjlab's own viewers can draw mjlab itself."""
        return self.replace(backend="native", physics="exact")


@configclass(builds="rrf.envs.mjlab.motion_env:build")
class MotionEnvCfg(MjlabEnvCfg):
    """A task of mjlab with reference motions of its robot, and an observation group "amp" that sees
    robot and motions alike."""

    clips: list[str] = ["configs/motions/go1-trot.npz"]
    """Files and folders with motion clips (rrf.envs.motions.clip)."""
    feet: list[str] = ["FR", "FL", "RR", "RL"]
    """Sites of the robot that are its feet."""
    frame_parts: list[str] = list(FRAME_PARTS)
    """What the group sees of a frame (rrf.envs.motions.rig.frames); joint_pos must come first.
    Leave out what is unreal in the clips: a discriminator would look at nothing else. The base of
    an animation, for example, never shakes."""
    reference_init: float = 0.0
    """Share of the episodes that begin in a state of the clips, drawn anew (reference state
    initialization, arXiv:1804.02717); the others begin as the task says."""

    def __post_init__(self):
        super().__post_init__()
        unknown = [part for part in self.frame_parts if part not in FRAME_PARTS]
        if unknown or self.frame_parts[:1] != ["joint_pos"]:
            raise ValueError(
                f"frame_parts is {self.frame_parts}, allowed: joint_pos, then any of "
                f"{', '.join(FRAME_PARTS[1:])}"
            )
        if not 0 <= self.reference_init <= 1:
            raise ValueError(f"reference_init is {self.reference_init}, allowed: 0 to 1")


@configclass(builds="rrf.envs.mjlab.tracking_env:build")
class TrackingEnvCfg(MjlabEnvCfg):
    """A task of mjlab in which the robot tracks a motion clip."""

    task: str = "Mjlab-Tracking-Flat-Unitree-G1"
    """mjlab's name of the task."""
    clip: str = "configs/motions/g1-squat.npz"
    """The motion clip (rrf.envs.motions.clip)."""
    actions_around: typing.Literal["reference", "default"] = "default"
    """What actions are added to: the joint angles of the clip's next frame, or, as in mjlab, those
    of the robot's default pose."""
    first_level: float = 1.0
    """Share of the disturbances (starts away from the clip, pushes) at the start of a training; it
    grows to 1 while the robots stay on their feet. 1: mjlab's own from the start."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.first_level <= 1:
            raise ValueError(f"first_level is {self.first_level}, allowed: 0 to 1")


@configclass(builds="rrf.envs.mjlab.shown_env:build")
class ShownEnvCfg(MjlabEnvCfg):
    """A task of mjlab in which a share of the episodes begins in states that a scripted expert went
    through; the others begin as the task says. For training: a protocol has `MjlabEnvCfg`."""

    task: str = "Mjlab-Lift-Cube-Yam"
    """mjlab's name of the task."""
    expert: str = SCRIPTED_EXPERTS[0]
    """The script, written "module:attr". One of your own also needs `--import module`."""
    share: float = 0.5
    """Share of the episodes that begin in a state of the expert, drawn anew."""
    num_shown: int = 128
    """Episodes that the expert plays before the training begins."""
    steps_shown: int = 200
    """Steps of each of them."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "num_shown", "steps_shown")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}, allowed: 0 to 1")

    def drawable(self) -> typing.Self:
        """Every episode begins as the task says."""
        return super().drawable().replace(share=0.0)
