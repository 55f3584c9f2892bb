"""The config of the two-goals task."""

from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg


@configclass(builds="rrf.envs.two_goals.env:TwoGoals")
class TwoGoalsEnvCfg(ControlEnvCfg):
    """A line with a small reward near the start and a large one far away: a test of exploration."""

    task: str = "TwoGoals"
    """The task's name in reports."""
    num_envs: int = 32
    """Environments stepped together."""
