"""The commands that a whole-body policy learns to follow: drawn at random, and approached at the
speeds of `RATES`.

Legend: N robots, K of them chosen.
"""

import numpy as np

from rrf.envs.humanoid.proprioception import HEIGHT, TORSO, VELOCITY
from rrf.envs.humanoid.robots import BODY_SIGNALS, G1, Robot

_ARMS = slice(0, -len(BODY_SIGNALS))
_STANDS, _UPRIGHT, _STRAIGHT, _AHEAD = 0.3, 0.4, 0.4, 0.35
# shares of commands without walking, crouch, lean; without going sideways, or turning
WALKS_FROM = 0.05
"""The level below which all commands are to stand: balance comes first."""
_WALKING_HEIGHT = 0.62  # m, of a G1
ARM_RATE = 2.0
"""rad/s; how fast the targets of the arms' joints may change."""
BODY_RATES = (2.0, 2.0, 3.0, 1.0, 1.0, 1.0, 0.25)
RATES = np.array([ARM_RATE] * len(G1.arms) + [*BODY_RATES])
"""How fast each number of the command may change, per second. Who sends steps gets these ramps."""
COMMAND_ARRAYS = ("goal_n15", "now_n15", "left_s_n", "arm_left_s_n")
"""Attributes of `Commands` that determine how they continue, beside their random generator."""
_HOLD_S, _ARM_HOLD_S = (3.0, 8.0), (1.0, 4.0)


def rates(robot: Robot) -> np.ndarray:
    """`RATES` of a robot, [15]."""
    return np.array([ARM_RATE] * len(robot.arms) + [*BODY_RATES])


def limits(robot: Robot = G1) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest command, [15] each."""
    signals = [robot.signal(name) for name in BODY_SIGNALS]
    low = [*robot.arm_low, *(signal.low for signal in signals)]
    high = [*robot.arm_high, *(signal.high for signal in signals)]
    return np.array(low), np.array(high)


def resting(robot: Robot = G1) -> np.ndarray:
    """The command to stand still, [15]."""
    return np.array([*robot.default_pose(robot.arms), *[0.0] * 6, robot.tall])


class Commands:
    """Commands of N robots, which change at random times."""

    def __init__(self, num_robots: int, rng: np.random.Generator, robot: Robot = G1):
        self._rng, self._robot = rng, robot
        self._low, self._high = limits(robot)
        self._rates = rates(robot)
        self.goal_n15 = np.tile(resting(robot), (num_robots, 1))
        self.now_n15 = self.goal_n15.copy()
        self.left_s_n = np.zeros(num_robots)
        self.arm_left_s_n = np.zeros(num_robots)
        self._is_held = False

    def hold(self, velocity_n3: np.ndarray | None) -> None:
        """Keep these velocities, upright and with still arms, also after resets; None draws again,
        when the time comes."""
        self._is_held = velocity_n3 is not None
        if velocity_n3 is not None:
            self.goal_n15[:] = resting(self._robot)
            self.goal_n15[:, VELOCITY] = velocity_n3

    def reset(self, robots: np.ndarray, level: float) -> None:
        """Start again from standing, and draw new goals unless they are held."""
        self.now_n15[robots] = resting(self._robot)
        if not self._is_held:
            self._draw(robots, level)
            self._draw_arms(robots, level)

    def advance(self, seconds: float, level: float) -> None:
        """Draw new goals where the time has come, unless they are held, and approach them.

        Args:
            seconds: Since the last call.
            level: Share of the ranges to draw from.
        """
        self.left_s_n -= seconds
        self.arm_left_s_n -= seconds
        if not self._is_held:
            if len(due := np.flatnonzero(self.left_s_n <= 0)):
                self._draw(due, level)
            if len(due := np.flatnonzero(self.arm_left_s_n <= 0)):
                self._draw_arms(due, level)
        step = self._rates * seconds
        self.now_n15 += np.clip(self.goal_n15 - self.now_n15, -step, step)

    def _draw(self, robots: np.ndarray, level: float) -> None:
        num, rng = len(robots), self._rng
        goal = self.goal_n15[robots]
        rest = resting(self._robot)
        share = rng.uniform(self._low, self._high, (num, len(rest)))
        drawn = rest + level * (share - rest)
        # Velocities keep a good part of their range from the start: slow walking is no easier.
        speed = 0.5 + 0.5 * level
        goal[:, VELOCITY] = speed * share[:, VELOCITY]
        goal[:, TORSO], goal[:, HEIGHT] = drawn[:, TORSO], drawn[:, HEIGHT]
        goal[rng.random(num) < _UPRIGHT, HEIGHT] = self._robot.tall
        goal[rng.random(num) < _STRAIGHT, TORSO] = 0.0
        goal[rng.random(num) < _AHEAD, -6] = 0.0  # vy
        goal[rng.random(num) < _AHEAD, -5] = 0.0  # vyaw
        stands = (rng.random(num) < _STANDS) | (level < WALKS_FROM)
        goal[stands, VELOCITY] = 0.0
        walks = ~stands  # nobody has to walk while he squats or bows deeply
        lowest = _WALKING_HEIGHT * self._robot.scale
        goal[walks, HEIGHT] = np.maximum(goal[walks, HEIGHT], lowest)
        goal[walks, TORSO] *= 0.5
        self.goal_n15[robots] = goal
        self.left_s_n[robots] = rng.uniform(*_HOLD_S, num)

    def _draw_arms(self, robots: np.ndarray, level: float) -> None:
        num, rng = len(robots), self._rng
        robot = self._robot
        default = robot.default_pose(robot.arms)
        drawn = rng.uniform(robot.arm_low, robot.arm_high, (num, len(default)))
        # Who walked with still arms falls over arms that move: they keep half of their range.
        share = 0.5 + 0.5 * level if level >= WALKS_FROM else 0.5 * level / WALKS_FROM
        self.goal_n15[robots, _ARMS] = default + share * (drawn - default)
        self.arm_left_s_n[robots] = rng.uniform(*_ARM_HOLD_S, num)
