"""What the upper levels send to the whole-body policy: 36 numbers, in the order of Psi0.

Order and meaning follow Psi0's deployment on a G1 with Dex3 hands (github.com/
physical-superintelligence-lab/Psi0): 14 joints of the hands, 14 of the arms, roll, pitch and yaw of
the torso, height, vx, vy, the turning rate and the heading. Imports no simulator.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np

from rrf.config import did_you_mean

SIDES = ("left", "right")
_FINGERS = ("thumb_0", "thumb_1", "thumb_2", "middle_0", "middle_1", "index_0", "index_1")
_ARM = (
    *("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow"),
    *("wrist_roll", "wrist_pitch", "wrist_yaw"),
)
HAND_JOINTS = tuple(f"{side}_hand_{joint}_joint" for side in SIDES for joint in _FINGERS)
ARM_JOINTS = tuple(f"{side}_{joint}_joint" for side in SIDES for joint in _ARM)

Unit = typing.Literal["rad", "m", "m/s", "rad/s"]
Frame = typing.Literal["joint", "heading", "start"]
"""joint: the joint's own angle, 0 as in the model. heading: an upright frame below the pelvis whose
x axis points where the pelvis does. start: the heading frame in which the episode began."""


@dataclasses.dataclass(frozen=True)
class Signal:
    """One number that a level sends to the next."""

    name: str
    unit: Unit
    frame: Frame
    low: float
    high: float

    @property
    def meaning(self) -> str:
        """Name, unit and frame, for messages."""
        return f"{self.name} ({self.unit}, frame {self.frame})"


# Ranges of the joints as in the model of the G1 with Dex3-1 hands (unitree_ros d6f13aa,
# g1_29dof_with_hand_rev_1_0.xml).
_HAND_RANGES = {
    "left": ((-1.0472, 1.0472), (-0.724312, 1.0472), (0.0, 1.74533))
    + 2 * ((-1.5708, 0.0), (-1.74533, 0.0)),
    "right": ((-1.0472, 1.0472), (-1.0472, 0.724312), (-1.74533, 0.0))
    + 2 * ((0.0, 1.5708), (0.0, 1.74533)),
}
_WRIST_RANGES = ((-1.97222, 1.97222), (-1.61443, 1.61443), (-1.61443, 1.61443))
_ARM_RANGES = {
    "left": ((-3.0892, 2.6704), (-1.5882, 2.2515), (-2.618, 2.618), (-1.0472, 2.0944)),
    "right": ((-3.0892, 2.6704), (-2.2515, 1.5882), (-2.618, 2.618), (-1.0472, 2.0944)),
}
_BODY: tuple[tuple[str, Unit, Frame, float, float], ...] = (
    ("torso_roll", "rad", "heading", -0.3, 0.3),
    ("torso_pitch", "rad", "heading", -0.2, 0.8),
    ("torso_yaw", "rad", "heading", -0.8, 0.8),
    ("height", "m", "heading", 0.5, 0.78),
    ("vx", "m/s", "heading", -0.6, 0.8),
    ("vy", "m/s", "heading", -0.4, 0.4),
    ("vyaw", "rad/s", "heading", -0.8, 0.8),
    ("target_yaw", "rad", "start", -3.141592653589793, 3.141592653589793),
)


def _signals() -> tuple[Signal, ...]:
    hand_ranges = [limits for side in SIDES for limits in _HAND_RANGES[side]]
    arm_ranges = [limits for side in SIDES for limits in (*_ARM_RANGES[side], *_WRIST_RANGES)]
    joints = (
        *zip(HAND_JOINTS, hand_ranges, strict=True),
        *zip(ARM_JOINTS, arm_ranges, strict=True),
    )
    return (
        *(Signal(name, "rad", "joint", low, high) for name, (low, high) in joints),
        *(Signal(*row) for row in _BODY),
    )


COMMAND: tuple[Signal, ...] = _signals()
"""All 36 signals. The pelvis follows `height` (above the ground), `vx` and `vy`, and turns to the
heading `target_yaw`; `vyaw` says how fast that heading turns at present. The torso's orientation is
relative to the heading frame."""
NAMES: tuple[str, ...] = tuple(signal.name for signal in COMMAND)
HANDS, ARMS, BODY = slice(0, 14), slice(14, 28), slice(28, 36)
LOW = np.array([signal.low for signal in COMMAND], np.float32)
HIGH = np.array([signal.high for signal in COMMAND], np.float32)


def indices(names: Sequence[str]) -> np.ndarray:
    """Where signals stand in the command, int64.

    Raises:
        ValueError: For an unknown signal, or one named twice.
    """
    for name in names:
        if name not in NAMES:
            raise ValueError(f"the command has no signal '{name}'{did_you_mean(name, NAMES)}")
    if len(set(names)) != len(names):
        raise ValueError(f"the signals {list(names)} name one twice")
    return np.array([NAMES.index(name) for name in names], np.int64)
