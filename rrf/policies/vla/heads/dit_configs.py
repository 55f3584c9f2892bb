"""The config of a flow-matching head that attends to the backbone's tokens. No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import FlowHeadCfg


@configclass(builds="rrf.policies.vla.heads.dit:DiTHead")
class DiTHeadCfg(FlowHeadCfg):
    """Denoises a chunk by a diffusion transformer that attends to the tokens of any backbone."""

    reads: typing.ClassVar[Ability] = "tokens"

    dit: DiTCfg = DiTCfg()
    """The diffusion transformer."""
