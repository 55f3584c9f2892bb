"""The config of the tables of BridgeData V2 in ManiSkill3. Imports no simulator."""

import os
import subprocess
import typing
from collections.abc import Collection, Sequence
from pathlib import Path

from rrf.config import configclass
from rrf.envs.foreign.checkouts import Checkout
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.maniskill.bridge_tasks import PUT_ON_PLATE, SIMPLER, instruction_of
from rrf.extras import NotSetUpError

CAMERA = "3rd_view_camera"
REAL2SIM = Checkout(
    "maniskill2-real2sim",
    "Apache-2.0",
    "https://github.com/simpler-env/ManiSkill2_real2sim",
    "ef7a4d4fdf4b69f2c2154db5b15b9ac8dfe10682",
)
"""SimplerEnv's table, objects and robot."""
RL4VLA = Checkout(
    "rl4vla",
    "MIT",
    "https://github.com/gen-robot/RL4VLA",
    "55f966d6bf721342518ff8609cc1388cc4e80ef9",
)
"""The objects, plates and pictures of PutOnPlateInScene25."""


@configclass
class BridgeCfg(ForeignVecEnvCfg):
    """A WidowX 250 S at the table of BridgeData V2 (SimplerEnv), in parallel slots, on the CPU.

    A state is the six joints in rad and the two fingers in metres. An action is a motion in metres
    and a rotation as axis times angle in rad, both in the frame of the robot's base, from the pose
    that the arm was last sent to. A positive last number opens the gripper.
    """

    simulator: typing.ClassVar[str] = "SimplerEnv"
    packages: typing.ClassVar[tuple[str, ...]] = ("mani-skill", "sapien", REAL2SIM.name)
    interpreter: typing.ClassVar[str] = "maniskill"
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = (CAMERA,)
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "bridge.py"
    simulator_class: typing.ClassVar[str] = "Bridge"
    can_ignore_terminations: typing.ClassVar[bool] = True
    conventions: typing.ClassVar[tuple[str, ...]] = ("gripper",)
    has_expert: typing.ClassVar[bool] = True
    has_stages: typing.ClassVar[bool] = True  # so that an instruction may differ by episode
    state_names: typing.ClassVar[tuple[str, ...]] = (
        *("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate"),
        *("left_finger", "right_finger"),
    )
    action_names: typing.ClassVar[tuple[str, ...]] = (
        *("dx", "dy", "dz", "drx", "dry", "drz"),
        "gripper",
    )
    state_parts: typing.ClassVar[typing.Mapping[str, int]] = {"qpos": 8}
    control_hz: typing.ClassVar[int] = 5
    checkouts: typing.ClassVar[tuple[Checkout, ...]] = (REAL2SIM,)

    max_episode_steps: int = 60
    """Horizon in actions."""
    cameras: list[str] = [CAMERA]
    """Camera names; empty for no images. `renderer` is not used."""
    assets: typing.Literal["genuine", "mixed", "stand_ins"] = "genuine"
    """genuine: meshes and pictures of the published repositories. mixed: what their clones lack,
    for instance because a mirror leaves out large files, is replaced by plain shapes. stand_ins:
    everything is replaced, and no clone is needed."""
    render_size: list[int] = [640, 480]
    """Width and height in which images are drawn, before they are squeezed into `image_size`."""
    shader: typing.Literal["default", "minimal"] = "default"
    """ManiSkill's shader. minimal takes two thirds of the time."""
    gripper: typing.Literal["plus_opens", "one_opens"] = "plus_opens"
    """What the last number of an action says. plus_opens: 1 opens and -1 closes. one_opens: 1
    opens and 0 closes, with nothing between, as policies of BridgeData predict it."""

    def __post_init__(self):
        super().__post_init__()
        if len(self.render_size) != 2 or min(self.render_size) < 16:
            raise ValueError(f"render_size={self.render_size} must be a width and a height, >= 16")

    @property
    def tasks(self) -> Sequence[str]:
        return tuple(SIMPLER)

    @property
    def num_initial_states(self) -> int:
        return min(count for _, count in SIMPLER.values())

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `bridge.Bridge`."""
        return {
            "assets": self.assets,
            "real2sim": os.environ.get(REAL2SIM.variable),
            "rl4vla": os.environ.get(RL4VLA.variable),
            "commands": {"real2sim": how_to_clone(REAL2SIM), "rl4vla": how_to_clone(RL4VLA)},
            "image_size": self.image_size,
            "render_size": list(self.render_size),
            "shader": self.shader,
            "gripper": self.gripper,
        }

    @property
    def variables(self) -> dict[str, str]:
        """The thread that asks for an image draws it: other slots' processes have the cores."""
        return {"LP_NUM_THREADS": "0"}

    def versions(self, packages: Collection[str]) -> dict[str, str]:
        """See `VecEnvCfg.versions`; a clone's version is its commit."""
        found = super().versions(packages)
        if self.assets != "stand_ins":
            wanted = [checkout for checkout in self.checkouts if checkout.name in packages]
            found |= {checkout.name: _commit(checkout) for checkout in wanted}
        return found

    def instruction(self, task: str) -> str:
        return instruction_of(task)


@configclass
class PutOnPlateCfg(BridgeCfg):
    """RL4VLA's PutOnPlateInScene25 and its environments out of distribution (arXiv:2505.19789)."""

    simulator: typing.ClassVar[str] = "PutOnPlateInScene25"
    packages: typing.ClassVar[tuple[str, ...]] = (*BridgeCfg.packages, RL4VLA.name)
    checkouts: typing.ClassVar[tuple[Checkout, ...]] = (REAL2SIM, RL4VLA)

    max_episode_steps: int = 80
    """Horizon in actions."""

    @property
    def tasks(self) -> Sequence[str]:
        return PUT_ON_PLATE

    @property
    def num_initial_states(self) -> int:
        return 1000


def how_to_clone(checkout: Checkout) -> str:
    """What to type where a clone is not there."""
    folder = checkout.url.rpartition("/")[2]
    return (
        f"type: git clone {checkout.url}; git -C {folder} checkout {checkout.commit}; export "
        f"{checkout.variable}=$PWD/{folder} ({checkout.licence}); or set assets=mixed if the clone "
        "lacks large files, or assets=stand_ins for shapes of ours (PutOnPlateInScene25 only)"
    )


def _commit(checkout: Checkout) -> str:
    """The commit of a clone, or `files` if its folder is no repository."""
    folder = os.environ.get(checkout.variable)
    if folder is None:
        raise NotSetUpError(f"{checkout.variable} is not set; {how_to_clone(checkout)}")
    if not (Path(folder) / ".git").exists():
        return "files"
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"{checkout.variable}={folder} is no clone of {checkout.url}") from error
