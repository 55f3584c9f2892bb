"""The config of PushT. Imports no simulator."""

import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.configs import ForeignVecEnvCfg

TASK = "PushT"
INSTRUCTION = "push the T onto its outline"
CAMERA = "top"
SIDE = 512.0
"""Of the plane, in its pixels."""
REACH = 96.0
"""How far from the agent a relative action of 1 goes."""
KEYPOINTS = tuple(f"{axis}_{number}" for number in range(8) for axis in ("x", "y"))


@configclass
class PushtCfg(ForeignVecEnvCfg):
    """gym_pusht's PushT, in parallel slots.

    Lengths are in pixels of the 512 x 512 plane. A state is the place of the round agent and,
    with `keypoints`, of the T's eight corners, in gym_pusht's order. An action is the place that
    the agent goes to (`actions`). Success is a coverage of the outline above 95 %.

    Initial state i of a seed s is that of gym_pusht's `reset(seed=1000 s + i)`.
    """

    simulator: typing.ClassVar[str] = "PushT"
    packages: typing.ClassVar[tuple[str, ...]] = ("gym-pusht", "pymunk")
    interpreter: typing.ClassVar[str] = "pusht"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = (CAMERA,)
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "Pusht"
    instructions: typing.ClassVar[Mapping[str, str]] = {TASK: INSTRUCTION}
    has_expert: typing.ClassVar[bool] = True
    can_ignore_terminations: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("keypoints", "actions")
    action_names: typing.ClassVar[tuple[str, ...]] = ("x", "y")
    control_hz: typing.ClassVar[int] = 10

    max_episode_steps: int = 300
    """Horizon in actions."""
    image_size: int = 96
    """Height and width of the images in pixels."""
    cameras: list[str] = [CAMERA]
    """Camera names; empty for no images."""
    keypoints: bool = True
    """Whether a state has the corners of the T, too. Without, a policy sees them in the images
    only."""
    actions: typing.Literal["absolute", "relative"] = "absolute"
    """absolute: -1 and 1 are 0 and 512, as gym_pusht has it. relative: places are counted from the
    agent's, and 1 is 96 pixels; a small network learns these in far fewer steps."""
    reward: typing.Literal["progress", "coverage"] = "progress"
    """progress: by how much the largest coverage of the episode so far has risen, so that the
    return is the largest coverage. coverage: gym_pusht's own, coverage / 0.95 and at most 1."""

    @property
    def state_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the dimensions of a state."""
        return ("agent_x", "agent_y", *(KEYPOINTS if self.keypoints else ()))

    @property
    def state_parts(self) -> Mapping[str, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `VecEnvCfg.state_parts`."""
        return {"agent_pos": 2, **({"keypoints": len(KEYPOINTS)} if self.keypoints else {})}

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `simulator.Pusht`."""
        return {
            "image_size": self.image_size,
            "keypoints": self.keypoints,
            "reward": self.reward,
            "side": SIDE,
            "reach": REACH if self.actions == "relative" else None,
            "num_initial_states": self.num_initial_states,
        }

    @property
    def variables(self) -> dict[str, str]:
        """It draws on surfaces in memory."""
        return {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
