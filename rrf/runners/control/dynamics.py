"""Learning a task's dynamics from a published dataset of states; see `rrf.algorithms.model_based`.

Held-out episodes are drawn by the seed. After every iteration the model's errors in open loop on
them are compared with those of persistence.
"""

import numpy as np
import torch

from rrf import workspace
from rrf.algorithms.model_based.dynamics import DynamicsLearner, Recorded, open_loop_errors
from rrf.algorithms.model_based.dynamics_models import DynamicsModel
from rrf.data.dataset.sampling import mixed_seed
from rrf.data.dataset.transitions import read_transitions
from rrf.runners.control.dynamics_configs import DynamicsRunnerCfg
from rrf.runners.control.offline import OfflineRunner
from rrf.runners.control.recorded import actions_of, require_widths


class DynamicsRunner(OfflineRunner):
    """Trains a model, which is no policy: it cannot be evaluated or played."""

    cfg: DynamicsRunnerCfg
    learning_rates = "algorithm.learning_rate"

    def _build(self) -> None:
        cfg = self.cfg
        cfg.require_dataset()
        self.model: DynamicsModel = cfg.policy.build(self.env.interface).to(self.device)
        self.policy = self.model
        data = read_transitions(workspace.dataset(cfg.dataset))
        require_widths(data, self.cfg.dataset, self.env, self.model.width)
        # A terminated step's next observation was not recorded; the reader repeats the last one.
        columns = [data.observations, actions_of(data, self.cfg.dataset, self.env), data.rewards]
        columns += [data.next_observations, data.terminated, data.ended]
        recorded = Recorded(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))
        generator = torch.Generator().manual_seed(mixed_seed(cfg.seed, 2))
        training, self.held_out = recorded.split(cfg.holdout_fraction, generator)
        open_loop_errors(self.model, self.held_out, cfg.horizons)  # raises early if it cannot be
        self.algorithm: DynamicsLearner = cfg.algorithm.build(
            self.model, training, self.generator, self.device
        )
        self.steps_per_iteration = 0  # of the environment

    def _iterate(self) -> dict[str, float]:
        metrics = self.learn_from_dataset()
        return metrics | open_loop_errors(self.model, self.held_out, self.cfg.horizons)
