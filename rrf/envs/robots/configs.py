"""`configs/robots/NAME.yaml`: a robot of lerobot, its limits, and what it is to do.

`robot` and `teleop` are lerobot's own configs: `type` is one of its registered types, the rest are
the fields of that type. Everything else is ours. This file does not import lerobot.
"""

import copy
import math
import typing
from pathlib import Path

from rrf import workspace
from rrf.config import (
    Cfg,
    configclass,
    did_you_mean,
    first_error,
    read_yaml,
    require_not_negative,
    require_positive,
)
from rrf.data.schema import Schema, Vector, joined_units

ANGLES = ("deg", "rad")
FRACTIONS = {"0..100": (0.0, 100.0), "-100..100": (-100.0, 100.0)}
"""lerobot's normalised units: an interval that stands for the whole range of a joint."""
KINEMATIC_UNITS = (*ANGLES, "m", *FRACTIONS)


@configclass
class JointCfg(Cfg):
    """One number of an action: its unit and its limits."""

    unit: str
    """deg, rad, m, 0..100 or -100..100 (lerobot's normalised ranges), or another one."""
    min: float
    """The lowest command, in this unit."""
    max: float
    """The highest command, in this unit."""
    max_speed: float
    """The fastest change of the command, in this unit per second; of a velocity (NAME.vel, or a
    unit per second), its acceleration."""

    def __post_init__(self):
        require_positive(self, "max_speed")
        if not self.min < self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; min must be the lower one")


@configclass
class WorkspaceCfg(Cfg):
    """A box that a point of the robot must not leave, by forward kinematics of a command."""

    model: str
    """MJCF or URDF file, in the workspace or absolute; "so101-sim" is the simulated SO-101's."""
    point: str
    """A site or body of the model."""
    low: list[float]
    """The corner of the box with the lowest x, y, z, in m, in the frame of the model's world."""
    high: list[float]
    """The opposite corner."""
    joints: dict[str, str] = {}
    """Number of the action -> joint of the model, where it is not its name without ".pos"."""

    def __post_init__(self):
        if len(self.low) != 3 or len(self.high) != 3:
            raise ValueError("low and high must be [x, y, z]")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low is {self.low} and high is {self.high}; low must be lower")


@configclass
class RobotCfg(Cfg):
    """A robot, and what it is to do."""

    name: str
    """Name of the robot; the file is configs/robots/NAME.yaml."""
    robot: dict[str, typing.Any]
    """lerobot's config: `type`, one of its robots, and the fields of that type."""
    teleop: dict[str, typing.Any] | None = None
    """The same of a teleoperator, which `rrf record` needs."""
    teleop_action: str | None = None
    """module:function(action, observation) -> action, for a teleoperator whose actions are not the
    robot's (keyboard, gamepad, phone); the module must be named by --import."""
    instruction: str
    """What the robot is told, one English sentence."""
    fps: float
    """Control steps per second, which is also the rate of recordings."""
    real_time: bool = True
    """Whether to wait between control steps. false: for a simulated robot, whose time passes with
    its actions."""
    joints: dict[str, JointCfg]
    """Each number of an action, by lerobot's name (shoulder_pan.pos): unit and limits."""
    units: dict[str, str] = {}
    """Units of observed numbers that are not in an action, by lerobot's name."""
    workspace: WorkspaceCfg | None = None
    """Where a point of the robot may be; none is not checked."""
    on_limit: typing.Literal["hold", "torque_off"] = "hold"
    """What a stop does: stay where it is, or let go of the motors, so that an arm sinks."""
    max_age_s: float = 0.5
    """The oldest an observation may be when the action that answers it is sent, s."""
    max_late_s: float = 0.5
    """How late a control step may begin, s."""
    max_frozen_s: float | None = None
    """For how long a camera may show the same pixels, s; none is not checked."""
    watchdog_s: float = 1.0
    """Without a control step for so long, the robot is stopped from outside the loop, s."""
    approach_fraction: float = 0.25
    """With which fraction of `max_speed` the robot goes to where the teleoperator stands."""
    episode_s: float = 60.0
    """The longest episode, s."""
    reset_s: float = 10.0
    """Time between two episodes to prepare the scene, s; a key ends it earlier."""
    image_format: typing.Literal["png", "jpg"] = "png"
    """How recordings keep images: without loss, or ten times as fast."""
    licence: str = "CC0-1.0"
    """SPDX identifier for recordings."""
    provenance: str = "Recorded with `rrf record`."
    """How recordings come to be, in a sentence."""

    def __post_init__(self):
        require_positive(self, "fps", "max_age_s", "max_late_s", "max_frozen_s", "watchdog_s")
        require_positive(self, "episode_s")
        require_not_negative(self, "reset_s")
        if not 0 < self.approach_fraction <= 1:
            raise ValueError(
                f"approach_fraction is {self.approach_fraction}, allowed: above 0, at most 1"
            )
        if not self.instruction.strip():
            raise ValueError("instruction is empty; write what the robot is to do")
        if not self.joints:
            raise ValueError("joints is empty; each number of an action needs a unit and limits")
        for where, part in (("robot", self.robot), ("teleop", self.teleop)):
            if part is not None and not isinstance(part.get("type"), str):
                raise ValueError(
                    f"{where} needs a type, one of lerobot's: {{type: so101_follower}}"
                )
        if self.workspace is not None:
            for name in self.workspace.joints:
                if name not in self.joints:
                    raise ValueError(
                        f"workspace.joints: no '{name}'{did_you_mean(name, self.joints)}"
                    )

    def changed(self, changes: typing.Mapping[str, typing.Any]) -> typing.Self:
        """A copy with dotted paths replaced, as `override` does; below robot and teleop any path,
        which lerobot judges."""
        devices = copy.deepcopy({"robot": self.robot, "teleop": self.teleop or {}})
        ours = {}
        for path, value in changes.items():
            device, *keys = path.split(".")
            if device not in devices or not keys:
                ours[path] = value
                continue
            place: typing.Any = devices[device]
            for key in keys[:-1]:
                place = place.setdefault(key, {})
                if not isinstance(place, dict):
                    raise ValueError(f"'{path}' goes into a plain value, which has no fields")
            place[keys[-1]] = value
        teleop = devices["teleop"] or None
        return self.replace(robot=devices["robot"], teleop=teleop).override(ours)

    @property
    def max_steps(self) -> int:
        """Control steps of the longest episode."""
        return max(1, math.floor(self.episode_s * self.fps + 1e-9))

    @property
    def velocities(self) -> set[str]:
        """The numbers of an action that are velocities: 0 stands still."""
        return {
            name
            for name, joint in self.joints.items()
            if name.endswith((".vel", "velocity")) or joint.unit.endswith("/s")
        }

    def schema(
        self,
        states: typing.Sequence[str],
        actions: typing.Sequence[str],
        cameras: typing.Mapping[str, tuple],
    ) -> Schema:
        """What an episode of this robot holds.

        Args:
            states: Its observed numbers, in lerobot's order.
            actions: The numbers of its actions, in lerobot's order.
            cameras: Name -> (height, width).

        Raises:
            ValueError: For an observed number without a unit, or cameras of different sizes.
        """
        units = {name: joint.unit for name, joint in self.joints.items()} | self.units
        missing = [name for name in states if name not in units]
        if missing:
            raise ValueError(
                f"{self.name}: no unit for {', '.join(missing)}, which the robot observes; write "
                f"units: {{{missing[0]}: deg/s}}"
            )
        sizes = set(cameras.values())
        if len(sizes) > 1:
            raise ValueError(
                f"{self.name}: the cameras have different sizes ({_sizes(cameras)}); a dataset has "
                "one size: give all of them the same width and height"
            )
        joints = [self.joints[name] for name in actions]
        return Schema(
            fps=int(self.fps) if float(self.fps).is_integer() else self.fps,
            image_size=sizes.pop() if sizes else (0, 0),
            cameras=tuple(cameras),
            state=Vector(tuple(states), joined_units([units[name] for name in states])),
            action=Vector(
                tuple(actions),
                joined_units([joint.unit for joint in joints]),
                tuple(joint.min for joint in joints),
                tuple(joint.max for joint in joints),
            ),
            has_reward=False,
        )


def load_robot_cfg(name: str) -> RobotCfg:
    """The config of a robot by its name, or by the path of its file.

    Raises:
        ValueError: For an unknown name (with the closest known one), or naming the file and the key
            that is wrong.
    """
    known = workspace.configs("robots")
    path = Path(name) if name.endswith(".yaml") else known.get(name)
    if path is None:
        place = workspace.home() / "configs" / "robots"
        raise ValueError(f"no robot '{name}' in {place}{did_you_mean(name, known)}")
    data = read_yaml(path)
    try:
        cfg = RobotCfg.from_dict(data)
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error
    if cfg.name != path.stem:
        raise ValueError(f"{path}: name is '{cfg.name}', but the file is called '{path.stem}'")
    return cfg


def _sizes(cameras: typing.Mapping[str, tuple]) -> str:
    return ", ".join(f"{name} {size[0]}x{size[1]}" for name, size in cameras.items())
