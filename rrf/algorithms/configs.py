"""What the algorithms are told, as data. This file imports no torch."""

from rrf.config import Cfg, configclass


@configclass
class AugmentationCfg(Cfg):
    """How training batches are varied; validation batches never are."""

    shift_px: int = 3
    """Images move by up to this many pixels in each direction (arXiv:2107.09645)."""
    state_noise: float = 0.02
    """Standard deviation of noise on the state, in standard deviations of the dataset."""

    def __post_init__(self):
        if self.shift_px < 0 or self.state_noise < 0:
            raise ValueError(
                f"shift_px is {self.shift_px} and state_noise {self.state_noise}, "
                "allowed: 0 or more"
            )


@configclass(builds="rrf.algorithms.behavior_cloning:BehaviorCloning")
class BehaviorCloningCfg(Cfg):
    """Supervised imitation of demonstrated action chunks."""

    augmentation: AugmentationCfg | None = AugmentationCfg()
    """How training batches are varied; null trains on the recorded frames alone."""
