"""The on-policy loop of a population whose leader learns from all members (SAPG, arXiv:2407.20230),
and of one that evolves (EPO, arXiv:2503.19037).
"""

from rrf.runners.control.configs import SAPGOnPolicyRunnerCfg
from rrf.runners.control.episode_statistics import EpisodeStatistics
from rrf.runners.control.on_policy import OnPolicyRunner
from rrf.storage.rollout import ControlStep


class SAPGOnPolicyRunner(OnPolicyRunner):
    """Trains with SAPG. Also logs the returns of the leader, which is the deployed member."""

    cfg: SAPGOnPolicyRunnerCfg  # pyright: ignore[reportIncompatibleVariableOverride]

    def _build(self) -> None:
        super()._build()
        self.block = self.env.num_envs // self.cfg.policy.num_members
        self.leader = EpisodeStatistics(self.block, self.cfg.statistics_window)
        self.all_statistics["leader"] = self.leader

    def step_env(self, actions) -> ControlStep:
        step = super().step_env(actions)
        self.leader.observe(step.rewards[: self.block], step.dones[: self.block])
        return step

    def _iterate(self) -> dict[str, float]:
        metrics = super()._iterate()
        if self.cfg.policy.num_members == 1:
            return metrics
        return metrics | {f"{name}_leader": v for name, v in self.leader.metrics().items()}


class EPOOnPolicyRunner(SAPGOnPolicyRunner):
    """Trains with EPO. Iterations, blocks and metrics are the same as for SAPG."""
