"""Limits: the range that a metric of episodes must lie in."""

import math
from collections.abc import Iterable

from rrf.config import Cfg, configclass, did_you_mean, require_at_least_one


@configclass
class LimitCfg(Cfg):
    """The range that a metric must lie in; at least one end must be given."""

    min: float | None = None
    """The metric must be at least this; null for no lower end."""
    max: float | None = None
    """The metric must be at most this; null for no upper end."""

    def __post_init__(self):
        if self.min is None and self.max is None:
            raise ValueError("a limit needs min, max or both, e.g. {max: 0.2}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(
                f"min is {self.min} and max is {self.max}, but min must not be greater than max"
            )

    def holds(self, value: float) -> bool:
        """Whether the value lies in the range; both ends are included."""
        low = -math.inf if self.min is None else self.min
        high = math.inf if self.max is None else self.max
        return low <= value <= high

    def __str__(self) -> str:
        parts = [] if self.min is None else [f"at least {self.min:g}"]
        parts += [] if self.max is None else [f"at most {self.max:g}"]
        return " and ".join(parts)


@configclass
class MeanLimitCfg(LimitCfg):
    """The range that the mean of a metric over episodes must lie in."""

    min_episodes: int | None = None
    """How many episodes must have the metric; null for all of them. An episode may be too short for
    a metric, e.g. if the robot falls at once."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "min_episodes")


def check_metrics(names: Iterable[str], measured: Iterable[str], where: str) -> None:
    """Raise ValueError for a name that is not in `measured`; the message names the closest one."""
    for name in names:
        if name not in measured:
            raise ValueError(f"{where}: there is no metric '{name}'{did_you_mean(name, measured)}")
