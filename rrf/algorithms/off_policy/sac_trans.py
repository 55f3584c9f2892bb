"""SAC whose actor and critics look back on a history of observations with a causal transformer.

A stretch of stored steps is read once: each step attends to those before it in its episode, and the
last `sequence_length`, with at least `burn_in` behind them or the episode's beginning, are learned
from. A stretch is as long as the memory of the deployed policy, or shorter, so what is trained is
what acts; as long is better, for the longest look back is what acts most of the time. (In targets,
the state after a stretch's last step sees one observation more, by way of those before it.)
There is no memory to store: a history is observations, and those are in the replay.
"""

from rrf.algorithms.off_policy.sac_seq import SACSeq
from rrf.policies.control.sequence_encoder import TransformerEncoder


class SACTrans(SACSeq):
    """A second level of inheritance: all that differs from SACSeq is where histories begin."""

    encoder_class = TransformerEncoder
    stores_memories = False

    def check_policy(self) -> None:
        super().check_policy()
        window = self.cfg.burn_in + self.cfg.sequence_length
        for name in ("actor", "critic"):
            context = getattr(self.policy, name).memory.context
            if window > context:
                raise ValueError(
                    f"burn_in + sequence_length is {window}, but policy.{name}_cfg.encoder.context "
                    f"is {context}: the deployed policy looks back no further; lower the first, or "
                    "raise the second"
                )
