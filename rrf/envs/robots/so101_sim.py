"""A simulated SO-101 and its scripted leader, as lerobot's robots and teleoperators are.

`so101_sim` has the features of lerobot's so101_follower: shoulder_pan.pos, ..., gripper.pos in
degrees and 0..100, and pictures by the name of their camera. It can be used by lerobot's own
commands too (--robot.discover_packages_path=rrf.envs.robots). Its time passes with its
actions. `so101_sim_leader` plays the person who moves a leader arm: it sees the cube and picks it
up, a little differently each time.
"""

import dataclasses
import typing

import numpy as np
from lerobot.robots import Robot, RobotConfig
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig
from lerobot.utils.decorators import check_if_already_connected, check_if_not_connected

from rrf import workspace
from rrf.envs.robots.so101_scene import JOINTS, So101Scene, reaching

_OPEN, _CLOSED = 60.0, 10.0
_ABOVE_M, _GRASP_M, _UP_M = 0.07, 0.014, 0.11
_SPEED_DEG_S = 80.0
_NEAR = 3.0  # of degrees and hundredths
_GRIP_S = 0.4


@RobotConfig.register_subclass("so101_sim")
@dataclasses.dataclass(kw_only=True)
class SO101SimConfig(RobotConfig):
    """The simulated SO-101."""

    id: str | None = "sim"
    # Control steps per second: an action lasts 1 / fps.
    fps: float = 10.0
    # Cameras of configs/robots/so101-sim.xml.
    views: list[str] = dataclasses.field(default_factory=lambda: ["front"])
    # Height and width of the pictures in pixels.
    image_size: int = 64
    renderer: str = "warp"
    # Seed of the places where the cube lies.
    seed: int = 0


class SO101Sim(Robot):
    """See the module."""

    config_class = SO101SimConfig
    name = "so101_sim"

    def __init__(self, config: SO101SimConfig):
        config.calibration_dir = config.calibration_dir or workspace.state() / "robots" / "sim"
        super().__init__(config)
        self.config = config
        self.bus = _Motors(self)
        self.cameras = dict.fromkeys(config.views)  # lerobot's commands count them
        self.scene: So101Scene | None = None
        self.num_commands = 0

    @property
    def observation_features(self) -> dict[str, type | tuple]:
        size = self.config.image_size
        return {**self.action_features, **dict.fromkeys(self.config.views, (size, size, 3))}

    @property
    def action_features(self) -> dict[str, type]:
        return {f"{joint}.pos": float for joint in JOINTS}

    @property
    def is_connected(self) -> bool:
        return self.scene is not None

    @property
    def is_calibrated(self) -> bool:
        return True

    @check_if_already_connected
    def connect(self, calibrate: bool = True) -> None:
        size = self.config.image_size
        self.scene = So101Scene(self.config.views, (size, size), self.config.renderer)
        self.scene.reset(self.config.seed, 0)
        _RUNNING[self.id or ""] = self

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    @check_if_not_connected
    def get_observation(self) -> dict[str, typing.Any]:
        scene = self._connected
        positions = {f"{joint}.pos": value for joint, value in scene.positions().items()}
        return {**positions, **scene.images()}

    @check_if_not_connected
    def send_action(self, action: dict[str, typing.Any]) -> dict[str, typing.Any]:
        goals = {key.removesuffix(".pos"): value for key, value in action.items()}
        self._connected.command(goals)
        self._connected.advance(1 / self.config.fps)
        self.num_commands += 1
        return dict(action)

    @check_if_not_connected
    def disconnect(self) -> None:
        self._connected.close()
        self.scene = None
        _RUNNING.pop(self.id or "", None)

    def begin_episode(self, index: int) -> None:
        """Put the cube where episode `index` has it; see `rrf.envs.robots.guard.SimulatedTask`."""
        self._connected.reset(self.config.seed, index)

    @property
    def is_solved(self) -> bool:
        """Whether the cube is lifted."""
        return self._connected.is_solved

    @property
    def _connected(self) -> So101Scene:
        assert self.scene is not None
        return self.scene


class _Motors:
    """What lerobot's motor buses have that matters here."""

    def __init__(self, robot: SO101Sim):
        self._robot, self.has_torque = robot, True

    def enable_torque(self) -> None:
        self._set(True)

    def disable_torque(self) -> None:
        self._set(False)

    def _set(self, is_on: bool) -> None:
        self.has_torque = is_on
        if self._robot.scene is not None:
            self._robot.scene.set_torque(is_on)
            self._robot.scene.advance(0.5)  # an arm without torque sinks at once


_RUNNING: dict[str, SO101Sim] = {}


@TeleoperatorConfig.register_subclass("so101_sim_leader")
@dataclasses.dataclass(kw_only=True)
class SO101SimLeaderConfig(TeleoperatorConfig):
    """The scripted leader."""

    # The id of the simulated robot that it sees.
    watches: str = "sim"
    # How uneven its hand is, in degrees.
    tremor: float = 1.5
    seed: int = 0


class SO101SimLeader(Teleoperator):
    """See the module."""

    config_class = SO101SimLeaderConfig
    name = "so101_sim_leader"

    def __init__(self, config: SO101SimLeaderConfig):
        config.calibration_dir = config.calibration_dir or workspace.state() / "robots" / "sim"
        super().__init__(config)
        self.config = config
        self._is_connected = False
        self._random = np.random.default_rng(config.seed)
        self._positions: dict[str, float] | None = None
        self._phase, self._steps_here = 0, 0
        self._grasp = np.zeros(2)  # where the cube was when it was grasped

    @property
    def action_features(self) -> dict[str, type]:
        return {f"{joint}.pos": float for joint in JOINTS}

    @property
    def feedback_features(self) -> dict[str, type]:
        return {}

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        return True

    @check_if_already_connected
    def connect(self, calibrate: bool = True) -> None:
        self._is_connected = True

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    @check_if_not_connected
    def get_action(self) -> dict[str, float]:
        robot = _RUNNING.get(self.config.watches)
        if robot is None or robot.scene is None:
            raise ConnectionError(
                f"the scripted leader sees no simulated robot with the id '{self.config.watches}'"
            )
        if self._positions is None:  # an episode begins: the person stands where the arm is
            self._positions = robot.scene.positions()
            self._phase, self._steps_here = 0, 0
        self._positions = self._moved(robot.scene, 1 / robot.config.fps)
        return {f"{joint}.pos": self._positions[joint] for joint in JOINTS}

    def begin_episode(self, index: int) -> None:
        """A new episode: begin where the arm is."""
        self._random = np.random.default_rng([self.config.seed, index])
        self._positions = None

    def send_feedback(self, feedback: dict[str, typing.Any]) -> None:
        """A leader that feels nothing."""

    @check_if_not_connected
    def disconnect(self) -> None:
        self._is_connected = False

    def _moved(self, scene: So101Scene, seconds: float) -> dict[str, float]:
        """The hand a moment later."""
        assert self._positions is not None
        if self._phase < 2:
            self._grasp = scene.cube[:2]
        x, y = self._grasp
        height = (_ABOVE_M, _GRASP_M, _GRASP_M, _UP_M)[self._phase]
        try:
            goal = reaching(x, y, height, _OPEN if self._phase < 2 else _CLOSED)
        except ValueError:  # the cube was pushed away
            return self._positions
        is_near = all(abs(goal[joint] - self._positions[joint]) < _NEAR for joint in JOINTS)
        self._steps_here = self._steps_here + 1 if is_near else 0
        if (
            is_near
            and self._phase < 3
            and self._steps_here * seconds >= _GRIP_S * (self._phase == 2)
        ):
            self._phase, self._steps_here = self._phase + 1, 0
        far = max(abs(goal[joint] - self._positions[joint]) for joint in JOINTS)
        part = min(1.0, _SPEED_DEG_S * seconds / max(far, 1e-6))
        tremor = self._random.normal(0.0, self.config.tremor, len(JOINTS)) * (self._phase != 2)
        return {
            joint: self._positions[joint] + part * (goal[joint] - self._positions[joint]) + shake
            for joint, shake in zip(JOINTS, tremor * part, strict=True)
        }
