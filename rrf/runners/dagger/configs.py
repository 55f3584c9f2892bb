"""The config of DAgger. This file does not import torch."""

import dataclasses
import typing

from rrf.config import configclass, require_at_least_one
from rrf.envs.configs import VecEnvCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg


@configclass(builds="rrf.orchestra.dagger_run:build_runner")
class DAggerRunnerCfg(SupervisedRunnerCfg):
    """Imitation of a scripted expert in the states that the policy itself visits (DAgger).

    The fields of imitation describe the training of each round.
    """

    loop: typing.ClassVar[str] = "dagger"
    extends: typing.ClassVar[str] = "max_rounds"

    init_from: str | None = None
    """Checkpoint of the policy to start from, usually of supervised fine-tuning. Required."""
    max_steps: int = 150
    """Optimizer steps of each round."""
    validation_fraction: float = 0.0
    """Fraction of the episodes, recorded ones too, that is held out to measure the validation loss;
    0 trains on all."""
    env: VecEnvCfg
    """The simulator, which must have a scripted expert. Its number of slots is the total of all
    workers; its chunk_length is the number of actions that are executed per decision."""
    num_workers: int = 2
    """Number of environment worker processes."""
    worker_timeout_s: float = 60.0
    """Time limit for one chunk in seconds. A worker process that takes longer is replaced."""
    tasks: list[str] = []
    """Tasks to record."""
    env_seeds: list[int] = [42]
    """Environment seeds that generate the initial states of recorded episodes. Each round takes the
    next initial states; after the last one, the first one follows."""
    episodes_per_task: int = 5
    """Episodes recorded per task and round."""
    max_rounds: int = 4
    """Number of rounds; each records, trains and validates."""
    beta0: float = 0.5
    """Probability that the expert makes a decision in the first round. Otherwise the policy makes
    it."""
    beta_decay: float = 0.5
    """Factor on this probability from round to round. With beta0=1 and beta_decay=0, the expert
    acts in the first round and the policy in all others."""
    validation_seed: int = 2024
    """Environment seed that generates the initial states for validation, by which the best round is
    chosen."""
    validation_episodes: int = 10
    """Initial states per task in a validation. The policy plays each once, greedily."""

    def check_parent(self) -> str:
        """The checkpoint to start from. Raises ValueError without one."""
        if not self.init_from:
            raise ValueError(
                "init_from is not given, but DAgger starts from a policy whose states the expert "
                "labels; set init_from=<checkpoint of supervised fine-tuning>"
            )
        return self.init_from

    def spread_over_run(self) -> str | None:
        """See `RunnerCfg.spread_over_run`: every round has the same schedule."""
        return None

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(
            self, "num_workers", "episodes_per_task", "max_rounds", "validation_episodes"
        )
        for name in ("beta0", "beta_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 0 to 1")
        if not self.env_seeds or len(set(self.env_seeds)) != len(self.env_seeds):
            raise ValueError(f"env_seeds is {self.env_seeds}, allowed: one or more different seeds")
        available = self.env.num_initial_states
        for name, most in (
            ("episodes_per_task", available * len(self.env_seeds)),
            ("validation_episodes", available),
        ):
            if getattr(self, name) > most:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but there are only {most} initial states "
                    f"(a seed has {available})"
                )
        if self.validation_seed in self.env_seeds:
            raise ValueError(
                f"validation_seed {self.validation_seed} is one of env_seeds, but the best round "
                "must be chosen on initial states that were not trained on; use another seed"
            )

    def beta(self, round_number: int) -> float:
        """Probability that the expert makes a decision in a round; the first round is 0."""
        return self.beta0 * self.beta_decay**round_number

    def training(self, init_from: str, seed: int) -> SupervisedRunnerCfg:
        """The training of one round.

        Args:
            init_from: The checkpoint of the policy of the round before.
            seed: The seed of the training.
        """
        names = [field.name for field in dataclasses.fields(SupervisedRunnerCfg)]  # type: ignore[arg-type]
        shared = {name: getattr(self, name) for name in names}
        return SupervisedRunnerCfg(**shared | {"init_from": init_from, "seed": seed})
