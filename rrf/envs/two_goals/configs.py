"""The two goals, as data."""

from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg


@configclass(builds="rrf.envs.two_goals.env:TwoGoals")
class TwoGoalsEnvCfg(ControlEnvCfg):
    """A line with a small reward near and a large one far: a test of exploration."""

    task: str = "TwoGoals"
    """Its name in reports."""
    num_envs: int = 32
    """Environments stepped together."""
