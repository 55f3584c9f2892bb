"""The config of the task in which a humanoid tracks motions. Imports no simulator."""

import typing

from rrf.config import configclass
from rrf.envs.humanoid.whole_body_configs import HumanoidTaskCfg

G1_MOTIONS = ("g1-squat", "g1-walk", "g1-bow")


@configclass(builds="rrf.envs.humanoid.motion_env:MotionTrackingEnv")
class MotionTrackingEnvCfg(HumanoidTaskCfg):
    """A humanoid follows motion clips, seeing only what a robot measures: its joints, its gyroscope
    and its orientation, and the clip; neither where the clip is relative to it, nor how fast its
    own pelvis moves. Its policy drives all joints but the wrists, around those of the clip.

    An episode begins in any frame of any clip, and ends with the clip, with the time, or when the
    robot is lost: fallen, 25 cm too low or high, or tilted by 0.8 rad more than the clip.
    """

    simulator: typing.ClassVar[str] = "the motion-tracking task"
    measures: typing.ClassVar[tuple[str, ...]] = ("mpjpe", "velocity_error", "height_error")

    task: str = "G1-Motion-Tracking"
    """The task's name."""
    clips: list[str] = [f"configs/motions/{name}.npz" for name in G1_MOTIONS]
    """Motion clips (rrf.envs.motions.clip), or folders of them."""
    episode_s: float = 10.0
    """Length of an episode in seconds."""
    first_level: float = 0.0
    """Share of all that is random (friction, masses, motors, latency, noise, pushes, how episodes
    begin) at the start of a training. It grows to 1 while the robots stay on their feet."""

    def __post_init__(self):
        super().__post_init__()
        if not self.clips:
            raise ValueError("clips is empty; name motion clips: env.clips=[PATH]")
