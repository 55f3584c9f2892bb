"""Config of a policy with filtered actions. This file does not import torch."""

from rrf.config import configclass
from rrf.networks.block_configs import FFTFilterCfg
from rrf.policies.control.configs import StateIndStdActorCfg


@configclass(builds="rrf.policies.control.filtered_actor:FilteredActor")
class FilteredActorCfg(StateIndStdActorCfg):
    """A Gaussian whose mean passes a low-pass filter over the last steps."""

    filter_cfg: FFTFilterCfg = FFTFilterCfg()
    """The filter."""

    def __post_init__(self):
        super().__post_init__()
        if self.memory is not None:
            raise ValueError(
                "a filtered actor has the filter's memory and no other; set memory=null"
            )
