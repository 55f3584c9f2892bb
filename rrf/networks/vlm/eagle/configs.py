"""The config of Eagle 2.5 as GR00T N1.5 uses it. No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg

N15_IMAGE = ImageRuleCfg(size=(224, 224), fit="stretch", keeps=0.95, cut="before")
"""How GR00T N1.5 sees images, by all data configs of NVIDIA/Isaac-GR00T (branch n1.5-release)."""


@configclass(builds="rrf.networks.vlm.eagle.backbone:EagleBackbone")
class EagleCfg(BackboneCfg):
    """SigLIP2, a connector, and the lower layers of Qwen3; by default in the sizes of GR00T N1.5
    (SigLIP2-So400m and Qwen3-1.7B)."""

    patches_per_token: typing.ClassVar[int] = 4

    image: ImageRuleCfg = ImageRuleCfg(size=(224, 224))
    """How camera images are brought to the size that the vision tower sees; a square."""
    hidden_size: int = 2048
    """Width of the language model."""
    num_layers: int = 12
    """Layers of the language model that are kept, from the first. A checkpoint may have more."""
    num_heads: int = 16
    """Attention heads of the language model."""
    num_kv_heads: int = 8
    """Heads of keys and values."""
    head_dim: int = 128
    """Width of a head of the language model."""
    intermediate_size: int = 6144
    """Width of the language model's MLPs."""
    vocab_size: int = 151680
    """Tokens of the language."""
    rope_theta: float = 1e6
    """Base of the rotary position embedding."""
    vision_depth: int = 27
    """Blocks of the vision tower."""
    vision_width: int = 1152
    """Width of the vision tower."""
    vision_heads: int = 16
    """Attention heads of the vision tower."""
    vision_intermediate: int = 4304
    """Width of the vision tower's MLPs."""
    patch_size: int = 14
    """Side of a patch in pixels. Four patches become one token of the language model."""
    system_prompt: str | None = "You are a helpful assistant."
    """The first turn of the chat; null leaves out all marks of a chat."""

    @property
    def width(self) -> int:
        return self.hidden_size

    def __post_init__(self):
        height, width = self.image.size
        if height != width or height % (2 * self.patch_size):
            raise ValueError(
                f"image.size is {self.image.size}, allowed: squares whose side is a multiple of "
                f"{2 * self.patch_size} (two patches)"
            )
