"""The commands that a whole-body policy learns to follow: drawn at random, and approached at the
speeds of `RATES`.

Legend: N robots, K of them chosen.
"""

import numpy as np

from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.proprioception import COMMAND_NAMES

_SIGNALS = {signal.name: signal for signal in command.COMMAND}
_VELOCITY, _TORSO, _HEIGHT = slice(8, 11), slice(11, 14), 14
_ARMS = slice(0, len(body.PROXIMAL))
_STANDS, _UPRIGHT, _STRAIGHT, _AHEAD = 0.3, 0.4, 0.4, 0.35
# shares of commands without walking, crouch, lean; without going sideways, or turning
_ARM_LOW = np.array([-1.6, -0.2, -1.2, -0.6, -1.6, -1.4, -1.2, -0.6])
_ARM_HIGH = np.array([1.0, 1.4, 1.2, 1.6, 1.0, 0.2, 1.2, 1.6])  # rad, in front of the robot
WALKS_FROM = 0.05
"""The level below which all commands are to stand: balance comes first."""
ARM_RATE = 2.0
"""rad/s; how fast the targets of the arms' joints may change."""
RATES = np.array([ARM_RATE] * 8 + [2.0, 2.0, 3.0] + [1.0] * 3 + [0.25])
"""How fast each number of the command may change, per second. Who sends steps gets these ramps."""
COMMAND_ARRAYS = ("goal_n15", "now_n15", "left_s_n", "arm_left_s_n")
"""Attributes of `Commands` that determine how they continue, beside their random generator."""
_HOLD_S, _ARM_HOLD_S = (3.0, 8.0), (1.0, 4.0)


def limits() -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest command, [15] each."""
    names = COMMAND_NAMES[len(body.PROXIMAL) :]
    low = [*_ARM_LOW, *(_SIGNALS[name].low for name in names)]
    high = [*_ARM_HIGH, *(_SIGNALS[name].high for name in names)]
    return np.array(low), np.array(high)


def resting() -> np.ndarray:
    """The command to stand still, [15]."""
    rest = np.zeros(len(COMMAND_NAMES))
    rest[_ARMS], rest[_HEIGHT] = body.default_pose(body.PROXIMAL), body.TALL
    return rest


class Commands:
    """Commands of N robots, which change at random times."""

    def __init__(self, num_robots: int, rng: np.random.Generator):
        self._rng = rng
        self._low, self._high = limits()
        self.goal_n15 = np.tile(resting(), (num_robots, 1))
        self.now_n15 = self.goal_n15.copy()
        self.left_s_n = np.zeros(num_robots)
        self.arm_left_s_n = np.zeros(num_robots)

    def reset(self, robots: np.ndarray, level: float) -> None:
        """Start again from standing, and draw new goals."""
        self.now_n15[robots] = resting()
        self._draw(robots, level)
        self._draw_arms(robots, level)

    def advance(self, seconds: float, level: float) -> None:
        """Draw new goals where the time has come, and approach them.

        Args:
            seconds: Since the last call.
            level: Share of the ranges to draw from.
        """
        self.left_s_n -= seconds
        self.arm_left_s_n -= seconds
        if len(due := np.flatnonzero(self.left_s_n <= 0)):
            self._draw(due, level)
        if len(due := np.flatnonzero(self.arm_left_s_n <= 0)):
            self._draw_arms(due, level)
        step = RATES * seconds
        self.now_n15 += np.clip(self.goal_n15 - self.now_n15, -step, step)

    def _draw(self, robots: np.ndarray, level: float) -> None:
        num, rng = len(robots), self._rng
        goal = self.goal_n15[robots]
        rest = resting()
        share = rng.uniform(self._low, self._high, (num, len(COMMAND_NAMES)))
        drawn = rest + level * (share - rest)
        # Velocities keep a good part of their range from the start: slow walking is no easier.
        speed = 0.5 + 0.5 * level
        goal[:, _VELOCITY] = speed * share[:, _VELOCITY]
        goal[:, _TORSO], goal[:, _HEIGHT] = drawn[:, _TORSO], drawn[:, _HEIGHT]
        goal[rng.random(num) < _UPRIGHT, _HEIGHT] = body.TALL
        goal[rng.random(num) < _STRAIGHT, _TORSO] = 0.0
        goal[rng.random(num) < _AHEAD, 9] = 0.0  # vy
        goal[rng.random(num) < _AHEAD, 10] = 0.0  # vyaw
        stands = (rng.random(num) < _STANDS) | (level < WALKS_FROM)
        goal[stands, _VELOCITY] = 0.0
        walks = ~stands  # nobody has to walk while he squats or bows deeply
        goal[walks, _HEIGHT] = np.maximum(goal[walks, _HEIGHT], 0.62)
        goal[walks, _TORSO] *= 0.5
        self.goal_n15[robots] = goal
        self.left_s_n[robots] = rng.uniform(*_HOLD_S, num)

    def _draw_arms(self, robots: np.ndarray, level: float) -> None:
        num, rng = len(robots), self._rng
        default = body.default_pose(body.PROXIMAL)
        drawn = rng.uniform(_ARM_LOW, _ARM_HIGH, (num, len(default)))
        # Who walked with still arms falls over arms that move: they keep half of their range.
        share = 0.5 + 0.5 * level if level >= WALKS_FROM else 0.5 * level / WALKS_FROM
        self.goal_n15[robots, _ARMS] = default + share * (drawn - default)
        self.arm_left_s_n[robots] = rng.uniform(*_ARM_HOLD_S, num)
