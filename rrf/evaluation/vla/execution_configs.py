"""The rules by which an evaluation executes chunks, as configs. No torch here.

A chunk has more actions than are executed before the policy is asked again. The rules are those of
the controllers that run on robots (`rrf.client.controllers`), so that a policy can be judged in the
way it will act.
"""

from rrf.config import Cfg, configclass, require_not_negative


@configclass
class ExecutionCfg(Cfg):
    """A rule of execution."""

    def check(self, execute_steps: int) -> None:
        """Raise ValueError if the rule cannot execute this many steps per observation."""
        raise ValueError(
            f"execution names no rule; allowed types: {__name__}:RecedingHorizonCfg, "
            "TemporalEnsembleCfg, RealTimeChunkingCfg"
        )

    def required_steps(self, execute_steps: int) -> int:
        """The fewest steps that a chunk must have."""
        return execute_steps


@configclass(builds="rrf.evaluation.vla.execution:RecedingHorizon")
class RecedingHorizonCfg(ExecutionCfg):
    """Execute the first `execute_steps` actions of a chunk, then ask for another one."""

    def check(self, execute_steps: int) -> None:
        """Every number of steps is allowed."""


@configclass(builds="rrf.evaluation.vla.execution:TemporalEnsemble")
class TemporalEnsembleCfg(ExecutionCfg):
    """Ask in every step, and average what all chunks say about it (ACT, arXiv:2304.13705)."""

    rate: float = 0.01
    """m in the weights exp(-m i), where i = 0 is the oldest chunk; 0 for the plain mean."""

    def __post_init__(self):
        require_not_negative(self, "rate")

    def check(self, execute_steps: int) -> None:
        if execute_steps != 1:
            raise ValueError(
                f"a temporal ensemble asks in every step, but execute_steps is {execute_steps}; "
                "say execute_steps: 1"
            )


@configclass(builds="rrf.evaluation.vla.execution:RealTimeChunking")
class RealTimeChunkingCfg(ExecutionCfg):
    """Ask early, execute the running chunk meanwhile, and let the new chunk continue it
    (arXiv:2506.07339)."""

    delay_steps: int = 1
    """Action steps that an answer takes: so old is the observation when the chunk computed from it
    takes over. Round up: latency / duration of an action step."""

    def __post_init__(self):
        require_not_negative(self, "delay_steps")

    def check(self, execute_steps: int) -> None:
        if self.delay_steps > execute_steps:
            raise ValueError(
                f"a new chunk is asked for every {execute_steps} steps (execute_steps), but an "
                f"answer takes {self.delay_steps} (delay_steps); a policy answers one request at a "
                "time, so raise execute_steps"
            )

    def required_steps(self, execute_steps: int) -> int:
        return execute_steps + self.delay_steps
