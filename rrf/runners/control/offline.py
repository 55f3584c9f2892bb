"""Training on a published dataset of states; afterwards, if wanted, in the environment.

    transitions = the dataset's, actions scaled to [-1, 1], rewards scaled
    normalisers <- all observations, once
    for each offline iteration: `updates_per_iteration` gradient steps
    for each online iteration: as `rrf.runners.control.off_policy`, from both kinds of transitions

The environment says what the policy will see and do; while learning offline it is never stepped.
The last checkpoint is the result: choosing one by its return would need the environment.
"""

import time
import warnings

import numpy as np
import torch

from rrf import workspace
from rrf.algorithms.off_policy.learner import Means
from rrf.data.dataset.transitions import RecordedTransitions, read_transitions
from rrf.runners.control.off_policy import OffPolicyRunner
from rrf.runners.control.off_policy_configs import OfflineRunnerCfg
from rrf.runners.control.recorded import actions_of, require_widths
from rrf.storage.dataset_replay import DatasetReplay

_CHUNK = 50  # gradient steps between two looks at the signals
_PAPERS_RANGE = 1000.0  # of returns, with scales_by_returns (arXiv:2110.06169, appendix C)


class OfflineRunner(OffPolicyRunner):
    """Trains with IQL, CQL, TD3+BC, behaviour cloning, or another off-policy algorithm."""

    teacher = "dataset"

    def _build(self) -> None:
        super()._build()
        cfg: OfflineRunnerCfg = self.cfg
        cfg.require_dataset()
        data = read_transitions(workspace.dataset(cfg.dataset))
        self._check_lengths(data)
        scale, shift = self._reward_scale(data), cfg.reward_shift
        rows = self._rows(data, scale, shift).to(self.device)
        observations = rows[:, : self.algorithm.layout.actor_width]
        for network, part in self.algorithm.parts(observations):
            if network.normalizer is not None:
                network.normalizer.update(part)
        self.algorithm.learns_normalizers = False
        new, gamma = self.algorithm.replay, cfg.algorithm.gamma
        self.algorithm.replay = DatasetReplay(rows, new, gamma, scale, shift)

    @property
    def _replay_size(self) -> int:
        return self.cfg.replay_size if self.cfg.online_iterations else self.env.num_envs

    def _check_lengths(self, data: RecordedTransitions) -> None:
        """Warn of episodes without a transition, and of episodes of one step.

        Raises:
            ValueError: If rewards of single steps would be scaled as returns are.
        """
        cfg, ends = self.cfg, np.flatnonzero(data.ended)
        if unused := len(data.returns) - len(ends):
            warnings.warn(
                f"{unused} of {len(data.returns)} episodes of {cfg.dataset} have one frame and no "
                "end of the task, so nothing is learned from them",
                stacklevel=2,
            )
        if np.median(np.diff(ends, prepend=-1)) > 1:
            return
        what = (
            f"most of the {len(ends)} episodes of {cfg.dataset} have a single step. If the task's "
            "episodes are longer, its recording ends them too early: look at terminals and "
            "timeouts"
        )
        if cfg.scales_by_returns:
            raise ValueError(
                f"{what}; if not, set scales_by_returns=false: it would stretch single rewards to "
                f"a span of {_PAPERS_RANGE:g}, on which critics diverge"
            )
        warnings.warn(f"{what}; as it is, no action is followed by another", stacklevel=2)

    def _reward_scale(self, data: RecordedTransitions) -> float:
        """The factor on recorded and new rewards."""
        cfg = self.cfg
        if not cfg.scales_by_returns:
            return cfg.reward_scale
        spread = float(np.ptp(data.returns))
        if spread == 0:
            raise ValueError(
                f"all {len(data.returns)} episodes of {cfg.dataset} have the return "
                f"{data.returns[0]:g}, so rewards cannot be scaled by their range; set "
                "scales_by_returns=false"
            )
        return cfg.reward_scale * _PAPERS_RANGE / spread

    def _rows(self, data: RecordedTransitions, scale: float, shift: float) -> torch.Tensor:
        """The transitions as rows of a replay, [F, W]; rewards become scale * r + shift."""
        cfg, layout = self.cfg, self.algorithm.layout
        require_widths(data, cfg.dataset, self.env, layout.actor_width)
        if layout.critic_width is not None:
            raise ValueError(
                "the critics read other observations than the actor, but a dataset has one state; "
                f"set policy.critic_cfg.observation_groups={self.algorithm.policy.actor.groups}"
            )
        rewards = data.rewards * scale + shift
        flags = [flag.astype(np.float32)[:, None] for flag in (data.terminated, data.ended)]
        actions = actions_of(data, cfg.dataset, self.env)
        columns = [data.observations, actions, rewards[:, None], *flags]
        rows = np.concatenate([*columns, data.next_observations], axis=1, dtype=np.float32)
        return torch.from_numpy(rows)

    def _iterate(self) -> dict[str, float]:
        if self.iteration >= self.cfg.max_iterations - self.cfg.online_iterations:
            return super()._iterate()
        return self.learn_from_dataset()

    def learn_from_dataset(self) -> dict[str, float]:
        """The gradient steps of an offline iteration; returns metrics to log."""
        begin, wanted = time.perf_counter(), self.cfg.updates_per_iteration
        means = Means()
        done = self.algorithm.num_updates - self.iteration * wanted  # of an interrupted iteration
        while done < wanted:
            self._stop_if_signalled()
            count = min(_CHUNK, wanted - done)
            means.add(self.algorithm.make_updates(count))
            done += count
        metrics = {name: value.item() for name, value in means.averages().items()}
        return metrics | {
            "time/update": time.perf_counter() - begin,
            "train/num_updates": float(self.algorithm.num_updates),
        }
