"""How frames of the dataset's rate are made of recordings of other rates: part of
`configs/datasets/NAME.yaml`.

    fps: 18.35
    resample:
      times: obs/stamp              # when each row was recorded
      times_of: {obs/force: obs/force_stamp}
      nearest: [gripper]
"""

import typing

from rrf.config import Cfg, configclass, require_positive

TimeUnit = typing.Literal["s", "ms", "us", "ns"]
SECONDS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@configclass
class ResampleCfg(Cfg):
    """Frames at the dataset's fps, whatever the rates of the recordings.

    Frame k is at k / fps seconds after the moment from which on everything was recorded. States,
    actions and extra vectors are interpolated between the rows before and after it, increments are
    those of the time up to the next frame, images, maps and texts are those of the nearest row.
    Rewards are summed, and flags hold, over the rows up to the next frame.
    """

    times: str | None = None
    """Raw key of the time stamps of all rows. Without it, rows are taken to follow each other at
    the recordings' frames per second."""
    times_of: dict[str, str] = {}
    """Raw key -> raw key of its own time stamps, for what was recorded at another rate. All are of
    one clock."""
    unit: TimeUnit = "s"
    """Unit of the time stamps."""
    nearest: list[str] = []
    """Dimensions that are taken from the nearest row: grippers that are open or closed, counters,
    angles that jump from pi to -pi, quaternions."""
    max_gap_s: float = 0.2
    """Longest time from one row to the next, s; an episode with a longer one is refused."""

    def __post_init__(self):
        require_positive(self, "max_gap_s")
