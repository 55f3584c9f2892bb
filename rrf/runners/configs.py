"""What a training run is, as data: the config a preset returns. This file imports no torch."""

import typing

from rrf.config import Cfg, configclass


@configclass
class AdamWCfg(Cfg):
    """AdamW (arXiv:1711.05101)."""

    lr: float = 1e-3
    """Peak learning rate; the schedule scales it."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running mean of gradients and of their squares."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""

    def __post_init__(self):
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}, allowed: above 0")


@configclass
class ScheduleCfg(Cfg):
    """How the learning rate moves over the run."""

    kind: typing.Literal["constant", "cosine", "one_cycle"] = "one_cycle"
    """cosine: linear up, cosine down; one_cycle: cosine up, cosine down (arXiv:1708.07120)."""
    warmup_fraction: float = 0.3
    """Share of the steps spent on the way up."""
    initial_factor: float = 0.04
    """Where one_cycle begins, relative to the peak."""
    final_factor: float = 0.0
    """Where cosine and one_cycle end, relative to the peak."""

    def __post_init__(self):
        if not 0 <= self.warmup_fraction < 1:
            raise ValueError(
                f"warmup_fraction is {self.warmup_fraction}, allowed: from 0 to below 1"
            )


@configclass
class EMACfg(Cfg):
    """A running average of the weights, which is what gets validated and deployed."""

    decay: float = 0.995
    """Share of the old average kept at each step; at most (1 + n) / (10 + n) at step n."""

    def __post_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay is {self.decay}, allowed: from 0 to below 1")


@configclass
class RunnerCfg(Cfg):
    """What every training run has."""

    loop: typing.ClassVar[str]
    """What trains it, a name of `rrf.cli.trainings.TRAININGS`."""
    policy_kind: typing.ClassVar[str]
    """Which policies it trains: one of `rrf.runners.checkpoints.deployable.KINDS`."""

    experiment_name: str = "default"
    """Groups runs in the tracking store, and names the run directory."""
    seed: int = 0
    """Decides initial weights, batch order and augmentation."""
    trackers: list[str] = ["mlflow", "tensorboard"]
    """Where metrics go."""

    def __post_init__(self):
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}, allowed: 0 to 2**63 - 1")
        if not self.experiment_name or "/" in self.experiment_name:
            raise ValueError(
                f"experiment_name is '{self.experiment_name}', allowed: a name without '/', which "
                "run directories begin with"
            )
