"""SAC whose actor and critics read a history of observations with a causal transformer.

The transformer reads a stretch of `burn_in` + `sequence_length` stored steps at once. Each step
attends to the earlier steps of its episode. The last `sequence_length` steps have a loss; each of
them has a history of at least `burn_in` steps, or one that begins with its episode.

A stretch must not be longer than the context of the deployed policy, so that training never uses a
longer history than acting. Equal lengths are best, because most of the time the deployed policy
acts on its full context. (In targets, the state after a stretch's last step indirectly sees one
more observation, through the steps before it.)

No memory is stored: a history consists of observations, which are already in the replay.
"""

from rrf.algorithms.off_policy.sac_seq import SACSeq
from rrf.policies.control.sequence_encoder import TransformerEncoder


class SACTrans(SACSeq):
    """A second level of inheritance, because only where histories begin differs from SACSeq."""

    encoder_class = TransformerEncoder
    encoder_cfgs = "TransformerEncoderCfg"
    stores_memories = False

    def check_policy(self) -> None:
        super().check_policy()
        window = self.cfg.burn_in + self.cfg.sequence_length
        for name in ("actor", "critic"):
            context = getattr(self.policy, name).memory.context
            if window > context:
                raise ValueError(
                    f"burn_in + sequence_length is {window}, but policy.{name}_cfg.encoder.context "
                    f"is {context}, the longest history that the deployed policy sees; lower "
                    "burn_in or sequence_length, or raise the context"
                )
