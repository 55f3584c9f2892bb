"""Imitation of a published dataset of states by reinforcement learning in the environment.

    expert = the dataset's transitions, of `num_trajectories` episodes drawn with the seed
    for each iteration: as `rrf.runners.control.on_policy`, with the algorithm's own reward

Metrics of the rollout are those of the task: `rollout/return` sums the task's rewards.
"""

import numpy as np
import torch

from rrf import workspace
from rrf.algorithms.imitation.gail import Transitions
from rrf.data.dataset.sampling import mixed_seed
from rrf.data.dataset.transitions import RecordedTransitions, read_transitions
from rrf.runners.control.imitation_configs import ImitationRunnerCfg
from rrf.runners.control.on_policy import OnPolicyRunner
from rrf.runners.control.recorded import actions_of, require_widths

_DRAW = 2  # tells the seed of the drawn episodes from others of the run


class ImitationRunner(OnPolicyRunner):
    """Trains with GAIL."""

    cfg: ImitationRunnerCfg  # pyright: ignore[reportIncompatibleVariableOverride]

    def _build(self) -> None:
        super()._build()
        cfg = self.cfg
        cfg.require_dataset()
        data = read_transitions(workspace.dataset(cfg.dataset), needs_rewards=False)
        require_widths(data, cfg.dataset, self.env, self.algorithm.policy.actor.width)
        columns = {
            "states": data.observations,
            "actions": actions_of(data, cfg.dataset, self.env),
            "next_states": data.next_observations,
            "terminated": data.terminated,
        }
        rows = self._drawn(data)
        drawn = {name: torch.from_numpy(column[rows]) for name, column in columns.items()}
        self.algorithm.imitate(Transitions(**drawn))

    def _begin(self) -> None:
        super()._begin()
        if self.iteration == 0 and self.cfg.algorithm.cloning_updates and not self.cfg.init_from:
            self.algorithm.clone()

    def _drawn(self, data: RecordedTransitions) -> np.ndarray:
        """The transitions of the episodes to imitate, bool [N]."""
        cfg = self.cfg
        episodes = data.ended.cumsum() - data.ended  # the episode of each transition
        count, wanted = int(data.ended.sum()), cfg.num_trajectories
        if wanted is None:
            return np.ones(len(data), bool)
        if wanted > count:
            raise ValueError(
                f"num_trajectories is {wanted}, but the dataset {cfg.dataset} has {count} episodes "
                "of two frames or more; lower it, or set it to null for all"
            )
        draws = np.random.default_rng(mixed_seed(cfg.seed, _DRAW))
        return np.isin(episodes, draws.choice(count, wanted, replace=False))
