"""The config of stopping hopeless episodes. This file does not import torch."""

from rrf.config import Cfg, configclass


@configclass(builds="rrf.runners.vla_rl.early_stop:EarlyStop")
class EarlyStopCfg(Cfg):
    """Ends training episodes that are seldom solved from where they are; see the module."""

    hope: float = 0.02
    """Where fewer than this share of a task's episodes were solved later, an episode is stopped."""
    continued: float = 0.1
    """Share of these that go on nevertheless. What they achieve counts 1 / continued times."""
    memory: float = 0.6
    """Weight of the earlier rounds in the estimate, per round."""

    def __post_init__(self):
        if not (0 < self.hope < 1 and 0 < self.continued <= 1 and 0 <= self.memory < 1):
            raise ValueError(
                f"hope is {self.hope}, continued is {self.continued} and memory is {self.memory}, "
                "allowed: hope between 0 and 1, continued above 0 and up to 1, memory from 0 to "
                "below 1"
            )
