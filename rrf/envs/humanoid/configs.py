"""The config of the G1 at its table. Imports no simulator."""

import hashlib
import math
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rrf import workspace
from rrf.config import configclass, did_you_mean
from rrf.envs.configs import VecEnvCfg
from rrf.envs.humanoid import command
from rrf.envs.humanoid.tasks import COLORS, PICK_AND_PLACE, SHAPES, TASKS

CAMERAS = ("ego", "outside")
CONTROL_HZ = 50
"""How often the whole-body policy chooses its targets."""
NUM_JOINTS = 43
SYSTEM0 = "system0"
"""Among the versions of packages: the digest of the whole-body policy."""
INSTRUCTIONS = {name: task.instruction for name, task in TASKS.items()}
"""Task -> instruction."""

_MANIFEST = "manifest.json"  # of every checkpoint: the digests of its files


@configclass(builds="rrf.envs.humanoid.simulator:HumanoidVecEnv")
class HumanoidCfg(VecEnvCfg):
    """A Unitree G1 with three-fingered hands in front of a table, in parallel slots.

    An action is a command (`rrf.envs.humanoid.command`), in its units, clipped to the limits of
    each signal. A whole-body policy drives the body at 50 Hz so that it follows; hands are driven
    to the commanded angles. An episode ends with success, with the horizon, or unsolved when the
    robot falls.
    """

    simulator: typing.ClassVar[str] = "the G1's table"
    packages: typing.ClassVar[tuple[str, ...]] = ("mujoco", "mjlab", "mujoco-warp", SYSTEM0)
    has_expert: typing.ClassVar[bool] = True
    measures: typing.ClassVar[Mapping[str, str]] = {"fall": "1 if the robot fell"}
    conventions: typing.ClassVar[tuple[str, ...]] = ("signals", "objects")
    control_hz: typing.ClassVar[int] = CONTROL_HZ
    action_limit: typing.ClassVar[float] = math.pi
    in_checkpoint: typing.ClassVar[Mapping[str, str]] = {"system0": "system0"}
    noisy_dimensions: typing.ClassVar[tuple[int, ...]] = tuple(range(36))[command.ARMS]

    action_repeat: int = 5
    """Ticks of 1/50 s a command is held for; 5 gives 10 commands a second."""
    max_episode_steps: int = 150
    """Horizon in actions."""
    cameras: list[str] = ["ego"]
    """ego (in the robot's head), outside; empty for no images."""
    signals: list[str] = []
    """The signals of the command that an action has, in this order; empty for all 36. The others
    stay as they are when an episode begins."""
    objects: bool = False
    """Whether a state has the places of objects and plates, too."""
    system0: str = "configs/systems/g1-whole-body"
    """The checkpoint of a whole-body policy (System 0); by default the one that comes with rrf."""
    device: str = "cpu"
    """Warp device to render on, cpu or cuda:0."""

    def __post_init__(self):
        super().__post_init__()
        command.indices(self.signals)
        for camera in self.cameras:
            if camera not in CAMERAS:
                raise ValueError(f"no camera '{camera}'{did_you_mean(camera, CAMERAS)}")
        if CONTROL_HZ % self.action_repeat:
            raise ValueError(
                f"action_repeat={self.action_repeat} must divide {CONTROL_HZ}: 1, 2, 5, 10, …"
            )

    @property
    def action_dim(self) -> int:
        return len(self.signals) or len(command.NAMES)

    @property
    def state_parts(self) -> Mapping[str, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `VecEnvCfg.state_parts`."""
        parts = {
            "joint_pos": NUM_JOINTS,
            "joint_vel": NUM_JOINTS,
            "gravity": 3,
            "angular_velocity": 3,
            "heading": 1,
            "command": len(command.NAMES),
        }
        if self.objects:
            parts["objects"] = 3 * len(COLORS) * len(SHAPES) + 3 * len(COLORS)
        return parts

    @property
    def state_dim(self) -> int:
        return sum(self.state_parts.values())

    @property
    def tasks(self) -> Sequence[str]:
        return tuple(TASKS)

    @property
    def num_initial_states(self) -> int:
        return 1000

    def system0_folder(self) -> Path:
        """Where the whole-body policy is.

        Raises:
            ValueError: If it is not there; the message says what to type.
        """
        folder = workspace.find(self.system0)
        if not (folder / _MANIFEST).is_file():
            raise ValueError(
                f"no whole-body policy in {folder.absolute()} (system0={self.system0}); take the "
                "one that comes with rrf, by no system0, or train one by "
                "rrf train g1-whole-body-ppo and name its checkpoint: "
                "system0=.rrf/runs/g1-whole-body-ppo-…/global_step_N"
            )
        return folder

    def versions(self, packages: Collection[str]) -> dict[str, str]:
        """See `VecEnvCfg.versions`; the version of `SYSTEM0` is the digest of its files."""
        folder = self.system0_folder()
        found = super().versions([name for name in packages if name != SYSTEM0])
        if SYSTEM0 in packages:
            found[SYSTEM0] = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()[:16]
        return found

    def how_to_pin(self, versions: Mapping[str, str]) -> str:
        """See `VecEnvCfg.how_to_pin`."""
        others = {name: version for name, version in versions.items() if name != SYSTEM0}
        if SYSTEM0 not in versions:
            return super().how_to_pin(others)
        put = f"put the whole-body policy {versions[SYSTEM0]} into {self.system0}"
        return f"{put}; {super().how_to_pin(others)}" if others else put


@configclass(builds="rrf.envs.humanoid.simulator:HumanoidVecEnv")
class HumanoidPsi0Cfg(HumanoidCfg):
    """The same robot and table, with 14 pick-and-place instructions: the tasks from which a policy
    in two parts (`psi0-humanoid`) learns in demonstrations."""

    simulator: typing.ClassVar[str] = "humanoid-psi0"

    @property
    def tasks(self) -> Sequence[str]:
        return PICK_AND_PLACE
