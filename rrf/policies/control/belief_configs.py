"""Configs of encoders that predict what slow sensors will show. This file does not import torch."""

from rrf.config import configclass, require_at_least_one, require_not_negative
from rrf.policies.control.off_policy_configs import SequenceEncoderCfg


@configclass
class PredictiveEncoderCfg(SequenceEncoderCfg):
    """An encoder of the observations of `SlowSensorEnvCfg` that learns to predict them."""

    num_fast: int
    """Dimensions of the observation that are seen at every step; they come first."""
    num_slow: int
    """Dimensions that are seen at some steps only; they come after the fast ones."""
    hidden_size: int = 64
    """Width of the belief, which is also the output."""
    fast_coef: float = 1.0
    """Weight of the loss of predicting the next fast dimensions. 0 turns it off."""
    slow_coef: float = 1.0
    """Weight of the loss of predicting the slow dimensions before they are seen. 0 turns it off."""

    def __post_init__(self):
        require_at_least_one(self, "num_fast", "num_slow", "hidden_size")
        require_not_negative(self, "fast_coef", "slow_coef")


@configclass(builds="rrf.policies.control.belief_flow:BeliefFlow")
class BeliefFlowCfg(PredictiveEncoderCfg):
    """A belief that flows with the fast observations, and is corrected when a slow one arrives."""

    dt: float = 1.0
    """Length of the Euler step of the flow, dt in h + dt f(h, o, a)."""
    consistency_coef: float = 0.0
    """Weight of the loss that compares the belief, rolled forward on its own predictions, with that
    of a slow copy of the encoder. 0 turns it off."""
    consistency_steps: int = 5
    """Steps that the belief is rolled forward for this."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.dt <= 1:
            raise ValueError(f"dt is {self.dt}, allowed: above 0 and up to 1")
        if self.consistency_coef < 0 or self.consistency_steps < 1:
            raise ValueError(
                f"consistency_coef is {self.consistency_coef} and consistency_steps is "
                f"{self.consistency_steps}, allowed: consistency_coef 0 or more, and "
                "consistency_steps 1 or more"
            )


@configclass(builds="rrf.policies.control.gru_d:GRUD")
class GRUDCfg(PredictiveEncoderCfg):
    """GRU-D (arXiv:1606.01865): last values and the hidden state decay with the time since the
    slow dimensions were seen."""
