"""All that a run of `rrf train` has besides its loop, for `ControlRunnerCfg.build`."""

import typing

from rrf.runners.control.configs import ControlRunnerCfg
from rrf.runners.control.guard import Guard
from rrf.runners.control.loop import Extra
from rrf.runners.control.resume import RunCheckpoints
from rrf.runners.control.speed import Speed
from rrf.runners.control.video import Filming


def equipment(cfg: ControlRunnerCfg) -> dict[str, typing.Any]:
    """The arguments `checkpoints` and `extras` of a `ControlRunner`."""
    checkpoints = RunCheckpoints()
    extras: list[Extra] = [Speed(cfg.num_threads), Guard(cfg.guard, checkpoints)]
    if cfg.video_interval:
        extras.append(Filming(cfg.video_interval))
    return {"checkpoints": checkpoints, "extras": extras}
