"""What a training run is, as data: the config a preset returns. This file imports no torch."""

import typing

from rrf.algorithms.configs import BehaviorCloningCfg
from rrf.components.configs import CompactVLACfg, PolicyCfg
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

    experiment_name: str = "default"
    """Groups runs in the tracking store, and names the run directory."""
    seed: int = 0
    """Decides initial weights, batch order and augmentation."""
    trackers: list[str] = ["mlflow", "tensorboard"]
    """Where metrics go."""


@configclass(builds="rrf.runners.supervised:SupervisedRunner")
class SupervisedRunnerCfg(RunnerCfg):
    """Imitation of recorded episodes: pretraining and supervised fine-tuning (SFT)."""

    dataset: str = "metaworld-demo"
    """Name of a dataset under datasets/, or a path to one."""
    instructions: list[str] | None = None
    """Train only on episodes with these instructions; null takes all."""
    init_from: str | None = None
    """Checkpoint whose weights and normalisation this run starts from; null starts at random."""
    policy: PolicyCfg = CompactVLACfg()
    """The policy to train."""
    algorithm: BehaviorCloningCfg = BehaviorCloningCfg()
    """The supervised objective."""
    optimizer: AdamWCfg = AdamWCfg()
    """The optimizer."""
    schedule: ScheduleCfg = ScheduleCfg()
    """The learning rate over time."""
    ema: EMACfg | None = EMACfg()
    """Averaging of the weights; null deploys the last weights."""
    max_steps: int = 1500
    """Optimizer steps in the whole run."""
    batch_size: int = 64
    """Frames per step."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""
    precision: typing.Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward and backward pass; benchmarks/bf16_training.py compares them."""
    device: str = "cpu"
    """Where to train: cpu, cuda, cuda:1."""
    validation_fraction: float = 0.08
    """Share of the episodes held out to measure the validation loss; 0 trains on all."""
    validation_interval: int = 250
    """Steps between validation losses."""
    save_interval: int = 500
    """Steps between checkpoints; there is always one at the end."""
    num_checkpoints_kept: int = 2
    """Older checkpoints of this run are removed."""
    log_interval: int = 25
    """Steps between metrics."""

    def __post_init__(self):
        intervals = ("validation_interval", "save_interval", "log_interval")
        for name in ("max_steps", "batch_size", "num_checkpoints_kept", *intervals):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if self.max_grad_norm <= 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}, allowed: above 0")
        if not 0 <= self.validation_fraction <= 0.5:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction}, allowed: 0 to 0.5"
            )
