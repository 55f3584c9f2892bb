"""The config of PaliGemma (arXiv:2407.07726). No torch here.

The defaults are the sizes of PaliGemma-3B at 224 px.
"""

import typing

from rrf.config import Cfg, configclass
from rrf.networks.vlm.configs import Ability, BackboneCfg


@configclass
class SiglipCfg(Cfg):
    """A SigLIP vision tower (arXiv:2303.15343)."""

    width: int = 1152
    """Width of the features of a patch."""
    depth: int = 27
    """Number of layers."""
    mlp_dim: int = 4304
    """Width of the hidden layer of each MLP."""
    num_heads: int = 16
    """Attention heads per layer."""
    patch_size: int = 14
    """Height and width of the patches that an image is cut into, in pixels."""

    def __post_init__(self):
        if min(self.width, self.depth, self.mlp_dim, self.num_heads, self.patch_size) < 1:
            raise ValueError(f"the sizes of the vision tower are {self}, allowed: 1 or more each")
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, allowed: a divisor of the width {self.width}"
            )


@configclass
class GemmaCfg(Cfg):
    """The layers of a Gemma language model (arXiv:2403.08295)."""

    width: int = 2048
    """Width of the features of a token."""
    depth: int = 18
    """Number of layers."""
    mlp_dim: int = 16384
    """Width of the hidden layer of each MLP."""
    num_heads: int = 8
    """Heads of queries per layer."""
    num_kv_heads: int = 1
    """Heads of keys and values per layer. Several heads of queries share each of them."""
    head_dim: int = 256
    """Width of a head."""

    def __post_init__(self):
        if min(self.width, self.depth, self.mlp_dim, self.num_kv_heads) < 1:
            raise ValueError(f"the sizes of Gemma are {self}, allowed: 1 or more each")
        if self.num_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, allowed: a multiple of num_kv_heads "
                f"{self.num_kv_heads}"
            )
        if self.head_dim < 2 or self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}, allowed: an even number of 2 or more")


@configclass(builds="rrf.networks.vlm.paligemma.backbone:PaliGemma")
class PaliGemmaCfg(BackboneCfg):
    """PaliGemma. Image tokens and prompt attend to each other in full."""

    abilities: typing.ClassVar[frozenset[Ability]] = frozenset(
        {"pooled", "tokens", "layers", "language"}
    )

    vision: SiglipCfg = SiglipCfg()
    """The vision tower."""
    gemma: GemmaCfg = GemmaCfg()
    """The language model."""
    vocabulary_size: int = 257152
    """Rows of the embedding table, which also gives the logits."""
    max_tokens: int = 48
    """The most tokens that a prompt may have. A longer one is an error; nothing is cut off. pi0
    was trained with up to 48, pi0.5 with up to 200."""

    instructions: typing.Literal["underscores", "openpi", "lerobot"] = "underscores"
    """How an instruction is written into a prompt. openpi: without blanks at its ends, with a blank
    for each underscore and each line break, as openpi writes those of pi0 and pi0.5. lerobot: as it
    is, but for a line break at its end, as lerobot writes those of pi0. underscores: blanks for
    underscores, in the whole prompt."""

    def cleaned(self, instruction: str) -> str:
        if self.instructions == "openpi":
            return instruction.strip().replace("_", " ").replace("\n", " ")
        return instruction.removesuffix("\n") if self.instructions == "lerobot" else instruction

    @property
    def width(self) -> int:
        return self.gemma.width

    @property
    def layer_shape(self) -> tuple[int, int, int]:
        return self.gemma.depth, self.gemma.num_kv_heads, self.gemma.head_dim

    def __post_init__(self):
        height, width = self.image.size
        if height != width or height % self.vision.patch_size:
            raise ValueError(
                f"image.size is {self.image.size}, allowed for PaliGemma: squares whose side is a "
                f"multiple of vision.patch_size {self.vision.patch_size}"
            )
        if self.vocabulary_size < 1 or self.max_tokens < 1:
            raise ValueError(
                f"vocabulary_size is {self.vocabulary_size} and max_tokens {self.max_tokens}, "
                "allowed: 1 or more"
            )
