"""The config of the action expert of pi0 and pi0.5. No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import FlowHeadCfg, NoiseMethod


@configclass(builds="rrf.policies.vla.heads.pi:PiExpertHead")
class PiExpertHeadCfg(FlowHeadCfg):
    """An expert for actions that attends to every layer of the backbone. The defaults are the sizes
    of the published pi0 (arXiv:2410.24164) and pi0.5 (arXiv:2504.16054)."""

    reads: typing.ClassVar[Ability] = "layers"

    version: typing.Literal["pi0", "pi05"] = "pi0"
    """pi0: the state is a token, and the time is mixed into the tokens of the actions. pi05: the
    time conditions every norm, and the head does not see the state, which stands in the prompt."""
    width: int = 1024
    """Width of the features of a token of the expert."""
    mlp_dim: int = 4096
    """Width of the hidden layer of each MLP."""
    num_heads: int = 8
    """Heads of queries per layer. Number of layers, heads of keys and values and their width are
    the backbone's."""
    max_dims: int = 32
    """State and action are padded with zeros to this many dimensions."""
    min_period: float = 4e-3
    """Period of the fastest wave that encodes the time from 0 to 1."""
    max_period: float = 4.0
    """Period of the slowest one."""
    knowledge_insulation: bool = False
    """The expert's gradient does not reach the backbone (arXiv:2505.23705). Train the backbone by
    another loss then, or keep it frozen."""
    dtype: typing.Literal["fp32", "bf16"] = "fp32"
    """Number format of the expert's layers. What leads into and out of them is fp32."""
    num_denoise_steps: int = 10
    """Number of denoising steps from noise to action."""
    noise_method: NoiseMethod = "flow_sde"
    """Method that makes a step random: an SDE (flow_sde), coefficients-preserving sampling
    (flow_cps), or a learned std (reinflow)."""

    @property
    def sees_state(self) -> bool:
        return self.version == "pi0"

    def __post_init__(self):
        super().__post_init__()
        if min(self.width, self.mlp_dim, self.num_heads, self.max_dims) < 1 or self.width % 2:
            raise ValueError(
                f"width is {self.width}, mlp_dim {self.mlp_dim}, num_heads {self.num_heads} and "
                f"max_dims {self.max_dims}, allowed: 1 or more each, and an even width"
            )
        if not 0 < self.min_period < self.max_period:
            raise ValueError(
                f"min_period is {self.min_period} and max_period {self.max_period}, allowed: above "
                "0, and min_period below max_period"
            )
        if self.time_convention != "openpi":
            raise ValueError(
                f"time_convention is {self.time_convention}, allowed for pi0 and pi0.5: openpi"
            )
