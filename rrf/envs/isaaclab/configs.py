"""The configs of Isaac Lab's tasks. Imports no simulator."""

import os
import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.config import Cfg, configclass
from rrf.envs.foreign.configs import ForeignControlEnvCfg, ForeignVecEnvCfg
from rrf.envs.isaaclab.tasks import INTERPRETER

_ASSETS = "ISAACSIM_ASSET_ROOT"
PACKAGES = ("isaaclab", "newton", "mujoco-warp", "warp-lang")


def variables() -> dict[str, str]:
    """The environment variables of Isaac Lab's process; the user's own assets win."""
    return {_ASSETS: os.environ[_ASSETS]} if os.environ.get(_ASSETS) else {}


@configclass
class IsaacLabEnvCfg(ForeignControlEnvCfg):
    """A task of Isaac Lab, whose environments step together on Newton."""

    simulator: typing.ClassVar[str] = "Isaac Lab"
    interpreter: typing.ClassVar[str] = INTERPRETER
    packages: typing.ClassVar[tuple[str, ...]] = PACKAGES
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "simulator.py"
    simulator_class: typing.ClassVar[str] = "States"
    has_recorder: typing.ClassVar[bool] = True

    task: str = "Isaac-Cartpole"
    """Isaac Lab's id of the task."""
    num_envs: int = 64
    """Environments stepped together."""
    physics: str = "newton_mjwarp"
    """Isaac Lab's preset of the physics. Those of PhysX need Isaac Sim, which this adapter does not
    start."""
    overrides: dict[str, typing.Any] = {}
    """Changes of Isaac Lab's own config by dotted path, e.g. {"rewards.alive.weight": 2.0}; null
    removes a term."""
    clip_actions: float | None = None
    """Bound of the actions' absolute values; null for none."""
    is_seeded: bool = False
    """Episodes depend on their seed alone: nothing is randomised when the simulator starts, and
    all environments are in one place, since distances between them round differently."""
    policy_group: str = "policy"
    """The group of observations that the policy sees as "policy". Tasks with cameras show their
    policy images, and states as "critic"."""
    draws: bool = False
    """Whether the scene has a camera, so that videos can be made."""
    record: str | None = None
    """A file .hdf5 into which Isaac Lab's own recorder writes the episodes that end, with the
    pictures of the scene's cameras."""
    image_size: int | None = None
    """Height and width in pixels of the scene's own cameras; null for the task's."""

    def __post_init__(self):
        super().__post_init__()
        if self.record is not None and not self.record.endswith(".hdf5"):
            raise ValueError(f"record is '{self.record}', but its name must end in .hdf5")

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        return {
            "task": self.task,
            "physics": self.physics,
            "overrides": self.overrides,
            "clip_actions": self.clip_actions,
            "is_seeded": self.is_seeded,
            "policy_group": self.policy_group,
            "draws": self.draws,
            "image_size": self.image_size,
            "record": None if self.record is None else str(Path(self.record).absolute()),
        }

    @property
    def variables(self) -> dict[str, str]:
        return variables()

    def drawable(self) -> typing.Self:
        return self.replace(draws=True)

    def with_recorder(self, file: Path) -> typing.Self:
        """See `ControlEnvCfg.with_recorder`. What the scene's cameras see is written, too."""
        return self.replace(record=str(file), is_seeded=True, draws=False, image_size=64)


@configclass
class StateTermCfg(Cfg):
    """A part of the state that a policy of images sees."""

    key: str
    """The observation term, e.g. joint_pos_rel."""
    slice: list[int] | None = None
    """[first, last]: which of its numbers, last not included; null for all."""

    def __post_init__(self):
        if self.slice is not None and (
            len(self.slice) != 2 or not 0 <= self.slice[0] < self.slice[1]
        ):
            raise ValueError(f"slice of {self.key} is {self.slice}, allowed: [first, last]")


@configclass
class ActionMappingCfg(Cfg):
    """Where the numbers of a policy are among those that a task takes; the others are 0."""

    prefix_pad: int = 0
    """How many numbers come before."""
    suffix_pad: int = 0
    """How many numbers come after."""

    def __post_init__(self):
        if self.prefix_pad < 0 or self.suffix_pad < 0:
            raise ValueError(
                f"prefix_pad is {self.prefix_pad} and suffix_pad {self.suffix_pad}, allowed: 0 or "
                "more"
            )


@configclass
class IsaacLabCfg(ForeignVecEnvCfg):
    """A task of Isaac Lab for a policy that sees images, with the mapping that RLinf's extension of
    Isaac Lab has: `main_images`, `extra_view_images`, `states`, `action_mapping`.

    All slots are in one batch. Episodes begin as Isaac Lab resets them, with the seed of their
    initial state.
    """

    simulator: typing.ClassVar[str] = "Isaac Lab"
    interpreter: typing.ClassVar[str] = INTERPRETER
    packages: typing.ClassVar[tuple[str, ...]] = PACKAGES
    simulator_file: typing.ClassVar[Path] = Path(__file__).parent / "images.py"
    simulator_class: typing.ClassVar[str] = "Images"
    is_batched: typing.ClassVar[bool] = True
    can_ignore_terminations: typing.ClassVar[bool] = False
    conventions: typing.ClassVar[tuple[str, ...]] = (
        *("task", "main_images", "extra_view_images", "states", "action_mapping"),
        *("action_bound", "policy_group", "overrides"),
    )

    task: str = "Isaac-Cartpole-Camera"
    """Isaac Lab's id of the task."""
    task_description: str = "balance the pole"
    """The instruction."""
    main_images: str = "tiled_camera"
    """The camera of the task's scene that the policy sees first."""
    extra_view_images: list[str] = []
    """Further cameras."""
    states: list[StateTermCfg] = []
    """Observation terms that the policy sees besides images, in this order."""
    action_mapping: ActionMappingCfg = ActionMappingCfg()
    """Where the policy's numbers go."""
    num_actions: int = 1
    """Numbers in an action of the policy."""
    action_bound: float = 1.0
    """What an action of 1 is for the task."""
    success: str = "terminated"
    """terminated: the task ended the episode; survived: it did not, up to the horizon; or a term of
    the task's terminations. An episode that ends otherwise has failed."""
    policy_group: str = "policy"
    """The group of observations that has the terms of `states`."""
    physics: str = "newton_mjwarp"
    """Isaac Lab's preset of the physics."""
    overrides: dict[str, typing.Any] = {}
    """Changes of Isaac Lab's own config by dotted path; null removes a term."""
    device: str = "cpu"
    """Device that simulates and draws: cpu, cuda."""
    control_hz: int = 60  # pyright: ignore[reportIncompatibleVariableOverride]
    """Steps per second of the task."""
    max_episode_steps: int = 150
    """Horizon in actions."""
    cameras: list[str] = ["tiled_camera"]
    """Those of `main_images` and `extra_view_images` that are drawn. `renderer` is not used."""

    def __post_init__(self):
        known = (self.main_images, *self.extra_view_images)
        if unknown := [camera for camera in self.cameras if camera not in known]:
            raise ValueError(
                f"no camera '{unknown[0]}': main_images and extra_view_images name "
                f"{', '.join(known)}"
            )
        super().__post_init__()

    @property
    def action_dim(self) -> int:
        return self.num_actions

    @property
    def state_dim(self) -> int | None:
        widths = [term.slice[1] - term.slice[0] if term.slice else None for term in self.states]
        return None if None in widths else sum(width for width in widths if width)

    @property
    def tasks(self) -> Sequence[str]:
        return (self.task,)

    @property
    def num_initial_states(self) -> int:
        return 100_000

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of `images.Images`."""
        return {
            "task": self.task,
            "physics": self.physics,
            "overrides": self.overrides,
            "num_envs": self.num_envs,
            "device": self.device,
            "mapping": {
                "cameras": [self.main_images, *self.extra_view_images],
                "states": [{"key": term.key, "slice": term.slice} for term in self.states],
                "prefix_pad": self.action_mapping.prefix_pad,
                "suffix_pad": self.action_mapping.suffix_pad,
                "num_actions": self.num_actions,
                "action_bound": self.action_bound,
                "success": self.success,
                "policy_group": self.policy_group,
                "control_hz": self.control_hz,
            },
        }

    @property
    def variables(self) -> dict[str, str]:
        return variables()

    def instruction(self, task: str) -> str:
        return self.task_description
