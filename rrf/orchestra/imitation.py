"""Co-training: continued imitation of demonstrations during reinforcement learning.

The policy continues to imitate the demonstrations on which it was fine-tuned, so that it does not
forget what no group teaches at the moment. This is the second term of DAPG (arXiv:1709.10087), with
a constant weight.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from rrf.data.dataset.sampling import mixed_seed
from rrf.policies.policy import Policy
from rrf.runners.checkpoints import checkpoint
from rrf.runners.configs import RunnerCfg
from rrf.runners.supervised.aged_frames import with_ages
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import Frames, split_of
from rrf.runners.vla_rl.configs import CoTrainingCfg


class Imitation:
    """The supervised loss of the policy on batches of demonstrations."""

    def __init__(
        self,
        cfg: CoTrainingCfg,
        frames: Frames,
        policy: Policy,
        norm_stats: Mapping[str, Mapping],
    ):
        self.cfg = cfg
        self._frames = frames
        self._cloning = cfg.algorithm.build(policy, norm_stats)

    def loss(self, *key: int) -> torch.Tensor:
        """The weighted loss, a scalar with gradient, on a random batch.

        `key` determines the batch. Every frame has the same probability; the weights of datasets in
        a mixture are not used.
        """
        rng = np.random.default_rng(key)
        indices = rng.integers(self._frames.num_frames, size=self.cfg.batch_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed_seed(*key))  # for the noise of a flow-matching head
            loss, _ = self._cloning.loss(self._frames.batch(indices), rng)
        return self.cfg.weight * loss


def demonstrations_of(parent: str | Path) -> Frames:
    """The frames on which the policy in a checkpoint was fine-tuned.

    Raises:
        ValueError: If it was not fine-tuned on demonstrations, or told which of them are good, or
            if they are not on this machine.
    """
    cfg = RunnerCfg.from_dict(checkpoint.load_config(parent))
    if not isinstance(cfg, SupervisedRunnerCfg):
        raise ValueError(
            f"{parent} was not fine-tuned on demonstrations, so co-training has nothing to "
            "imitate; set co_training=null, or set init_from to a checkpoint of supervised "
            "fine-tuning"
        )
    if cfg.advantage:
        raise ValueError(
            f"{parent} was told which of its demonstrations are good (advantage), and co-training "
            "would imitate the others as if they were good, too; set co_training=null"
        )
    return with_ages(split_of(cfg), cfg.policy, cfg.seed).training
