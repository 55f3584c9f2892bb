"""The base config of training runs, which presets return. This file does not import torch."""

import typing
from collections.abc import Mapping

from rrf.config import Cfg, configclass, require_positive


@configclass
class AdamWCfg(Cfg):
    """AdamW (arXiv:1711.05101)."""

    lr: float = 1e-3
    """Peak learning rate. The schedule scales it."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the running means of gradients and of squared gradients."""
    eps: float = 1e-8
    """Added to the square root of the second moment."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""
    is_8bit: bool = False
    """Keep the state in 8 bits, a quarter of the memory; needs a GPU and `pip install
    bitsandbytes`."""

    def __post_init__(self):
        require_positive(self, "lr")


@configclass
class ScheduleCfg(Cfg):
    """How a value, e.g. the learning rate, changes over the run."""

    kind: typing.Literal["constant", "cosine", "one_cycle"] = "one_cycle"
    """constant: always the peak. cosine: linear increase, cosine decrease. one_cycle: cosine
    increase, cosine decrease (arXiv:1708.07120)."""
    warmup_fraction: float = 0.3
    """Fraction of the steps during which the value increases."""
    initial_factor: float = 0.04
    """Initial value of one_cycle, relative to the peak."""
    final_factor: float = 0.0
    """Final value of cosine and one_cycle, relative to the peak."""

    def __post_init__(self):
        if not 0 <= self.warmup_fraction < 1:
            raise ValueError(
                f"warmup_fraction is {self.warmup_fraction}, allowed: from 0 to below 1"
            )


@configclass
class EMACfg(Cfg):
    """An exponential moving average of the weights. The averaged weights are validated and
    deployed."""

    decay: float = 0.995
    """Fraction of the old average that is kept at each step; at most (1 + n) / (10 + n) at step
    n."""

    def __post_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay is {self.decay}, allowed: from 0 to below 1")


@configclass
class RunnerCfg(Cfg):
    """The settings that all training runs share."""

    loop: typing.ClassVar[str]
    """The training loop, a name in `rrf.cli.trainings.TRAININGS`."""
    policy_kind: typing.ClassVar[str]
    """The kind of policy to train, one of `rrf.runners.checkpoints.deployable.KINDS`."""
    extends: typing.ClassVar[str]
    """The field that makes a run longer and changes nothing else."""

    experiment_name: str = "default"
    """Name of the experiment in the tracking store. The name of the run directory begins with
    it."""
    seed: int = 0
    """Seed of all randomness: initial weights, batch order, augmentation, rollouts."""
    trackers: list[str] = ["mlflow", "tensorboard"]
    """Trackers that record the metrics."""

    def spread_over_run(self) -> str | None:
        """The setting whose course depends on the length of the whole run, e.g. "schedule.kind is
        cosine"; None if there is none, so that a run can be made longer."""
        return None

    def longer_than(self, saved: Mapping) -> tuple[str, ...]:
        """The field by which this run is longer than the one with the config `saved` and could be
        its continuation; empty if it is not, or could not."""
        before = saved.get(self.extends)
        is_longer = isinstance(before, int) and before < getattr(self, self.extends)
        return (self.extends,) if is_longer and not self.spread_over_run() else ()

    def __post_init__(self):
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}, allowed: 0 to 2**63 - 1")
        if not self.experiment_name or "/" in self.experiment_name:
            raise ValueError(
                f"experiment_name is '{self.experiment_name}', allowed: a name without '/' (the "
                "names of run directories begin with it)"
            )
