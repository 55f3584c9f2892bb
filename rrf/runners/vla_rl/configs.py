"""Reinforcement learning of policies that see images, as data. Imports no torch."""

import typing

from rrf.algorithms.vla.configs import BehaviorCloningCfg, GRPOCfg, PolicyGradientCfg
from rrf.config import Cfg, configclass
from rrf.envs.configs import VecEnvCfg
from rrf.policies.vla.configs import CompactVLACfg, GaussianHeadCfg, PolicyCfg
from rrf.runners.configs import AdamWCfg, EMACfg, RunnerCfg, ScheduleCfg


@configclass
class CurriculumCfg(Cfg):
    """Which initial states are trained on next."""

    floor: float = 0.25
    """Share of groups of a task that always succeeds, relative to one that always fails."""
    memory: float = 0.6
    """What a task's success rate keeps of its old value in each round."""
    skip: float = 0.75
    """Probability that an initial state solved by all when last played is passed over."""
    hope_episodes: int | None = None
    """Tasks are also weighted by the chance that so many episodes see a success at all, so that
    hopeless ones take little; null weighs by failures alone."""

    def __post_init__(self):
        if self.hope_episodes is not None and self.hope_episodes < 1:
            raise ValueError(
                f"hope_episodes is {self.hope_episodes}, allowed: 1 or more, or null for none"
            )
        if not (0 < self.floor <= 1 and 0 <= self.memory < 1 and 0 <= self.skip < 1):
            raise ValueError(
                f"floor is {self.floor}, memory {self.memory} and skip {self.skip}, allowed: above "
                "0 up to 1, and from 0 to below 1"
            )


@configclass(builds="rrf.orchestra.imitation:Imitation")
class CoTrainingCfg(Cfg):
    """The demonstrations that `init_from` was fine-tuned on, imitated further by every update, so
    that what no group teaches at the moment is not forgotten.
    """

    weight: float = 0.5
    """Of the supervised loss, beside the policy gradient's."""
    batch_size: int = 128
    """Frames per optimizer step."""
    algorithm: BehaviorCloningCfg = BehaviorCloningCfg()
    """How they are imitated."""

    def __post_init__(self):
        if self.weight <= 0 or self.batch_size < 1:
            raise ValueError(
                f"weight is {self.weight} and batch_size {self.batch_size}, allowed: above 0, and "
                "1 or more; co_training=null goes without"
            )


@configclass(builds="rrf.orchestra.inline_run:build_runner")
class VLARLRunnerCfg(RunnerCfg):
    """Reinforcement learning of a policy that succeeds now and then, in simulation."""

    loop: typing.ClassVar[str] = "vla_rl"
    policy_kind: typing.ClassVar[str] = "vla"

    init_from: str | None = None
    """Checkpoint to start from, usually of a supervised fine-tuning; it must be given."""
    policy: PolicyCfg = CompactVLACfg(head=GaussianHeadCfg())
    """The policy to train; its architecture is that of `init_from`, a value head may be new."""
    env: VecEnvCfg
    """The simulator, with the slots of all workers together."""
    num_workers: int = 2
    """Environment processes."""
    worker_timeout_s: float = 60.0
    """A process that takes longer for one chunk is replaced."""
    tasks: list[str] = []
    """Tasks to train on."""
    env_seeds: list[int] = [42]
    """Seeds whose initial states are trained on."""
    validation_seed: int = 2024
    """Seed whose initial states choose the checkpoint."""
    validation_episodes: int = 10
    """Initial states per task in a validation, greedy."""
    validation_interval: int = 10
    """Rounds between validations; there is always one at the end."""
    algorithm: PolicyGradientCfg = GRPOCfg()
    """GRPO or PPO."""
    num_groups: int = 24
    """Groups an update learns from (for PPO: episodes)."""
    max_groups: int = 72
    """Groups a round may begin to find so many with contrast."""
    stop_after_successes: int | None = 4
    """A group whose first so many episodes all succeeded is given up; null plays it to the end."""
    stop_after_failures: int | None = 6
    """The same for failures; rare successes teach most, so this had better be larger."""
    co_training: CoTrainingCfg | None = None
    """Imitation beside reinforcement; null for none."""
    curriculum: CurriculumCfg = CurriculumCfg()
    """Which initial states come next."""
    max_rounds: int = 40
    """Rounds of rollout and update."""
    optimizer: AdamWCfg = AdamWCfg(lr=2e-4, betas=(0.9, 0.95), weight_decay=0.0)
    """The optimizer."""
    value_lr: float = 1e-3
    """Peak learning rate of the value head."""
    schedule: ScheduleCfg = ScheduleCfg(kind="cosine", warmup_fraction=0.0, final_factor=0.2)
    """The learning rates over the rounds."""
    noise_schedule: ScheduleCfg = ScheduleCfg(kind="constant")
    """Randomness of actions over the rounds, relative to the head's own; where it ends low, what is
    rewarded in the end is close to the greedy policy that will be judged."""
    ema: EMACfg | None = EMACfg(decay=0.99)
    """Averaging of the weights; null deploys the last weights."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""
    update_threads: int = 2
    """Torch threads of an update, while the environments rest; results depend on it."""
    only_eval: bool = False
    """Validate `init_from` and stop."""
    save_interval: int = 8
    """Rounds between checkpoints."""
    num_checkpoints_kept: int = 2
    """Older checkpoints are removed, but never the best one."""
    resume_dir: str | None = None
    """Run directory to go on from; null looks into this run's own."""

    def __post_init__(self):
        super().__post_init__()
        counts = ("num_workers", "num_groups", "max_groups", "max_rounds", "validation_episodes")
        intervals = ("validation_interval", "save_interval", "num_checkpoints_kept")
        for name in (*counts, *intervals, "update_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if self.max_groups < self.num_groups:
            raise ValueError(
                f"max_groups is {self.max_groups}, but num_groups={self.num_groups} are wanted"
            )
        for name in ("stop_after_successes", "stop_after_failures"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise ValueError(f"{name} is {value}; allowed: 2 or more, or null for never")
        if self.validation_seed in self.env_seeds:
            raise ValueError(
                f"validation_seed {self.validation_seed} is one of env_seeds; a checkpoint must be "
                "chosen on initial states that were not trained on"
            )
