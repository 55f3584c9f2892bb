"""The config of the head that writes actions in a language model's tokens. No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import ActionHeadCfg, require_temperature


@configclass(builds="rrf.policies.vla.heads.action_tokens:ActionTokenHead")
class ActionTokenHeadCfg(ActionHeadCfg):
    """Each action dimension is one token of the language, one after the other (OpenVLA,
    arXiv:2406.09246)."""

    reads: typing.ClassVar[Ability] = "language"

    num_bins: int = 256
    """Number of tokens that stand for actions, the last ones of the vocabulary."""
    num_reserved_tokens: int = 64
    """Tokens after those, which only fill up the vocabulary to a multiple of some number."""
    temperature: float = 1.0
    """Divides the logits, both for sampling and in every log-probability."""

    def __post_init__(self):
        if self.num_bins < 2 or self.num_reserved_tokens < 0:
            raise ValueError(
                f"num_bins is {self.num_bins} and num_reserved_tokens is "
                f"{self.num_reserved_tokens}, allowed: 2 or more bins, and 0 or more reserved "
                "tokens"
            )
        require_temperature(self.temperature)
