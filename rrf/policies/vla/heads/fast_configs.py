"""The config of the head that writes chunks in FAST tokens. No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import ActionHeadCfg


@configclass(builds="rrf.policies.vla.heads.fast:FastHead")
class FastHeadCfg(ActionHeadCfg):
    """A language model writes the frequencies of a chunk, compressed to few tokens (FAST,
    arXiv:2501.09747)."""

    reads: typing.ClassVar[Ability] = "language"
    has_assets: typing.ClassVar[bool] = True
    takes_robots: typing.ClassVar[bool] = False

    files: str = ""
    """Directory with a fast_tokenizer.json, which `rrf.policies.vla.heads.fast_training` makes. Its
    content is saved with every checkpoint, so the directory is only needed to begin a training."""
    num_reserved_tokens: int = 128
    """Tokens at the end of the vocabulary that are left alone. The FAST tokens stand before
    them."""
    temperature: float = 1.0
    """Divides the logits, both for sampling and in every log-probability."""

    def __post_init__(self):
        if self.num_reserved_tokens < 0 or self.temperature <= 0:
            raise ValueError(
                f"num_reserved_tokens is {self.num_reserved_tokens} and temperature is "
                f"{self.temperature}, allowed: 0 or more, and above 0"
            )
