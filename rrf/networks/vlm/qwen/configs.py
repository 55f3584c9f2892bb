"""Configs of Qwen2-VL and Qwen3-VL. No torch here.

The sizes of the published models are in `rrf.presets.qwen`.
"""

import re
import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg


@configclass
class QwenVLCfg(BackboneCfg):
    """What both generations have in common."""

    patches_per_token: typing.ClassVar[int] = 4

    hidden_size: int = 1536
    """Width of the language model."""
    num_layers: int = 28
    """Layers of the language model that are kept, from the first. A checkpoint may have more."""
    num_heads: int = 12
    """Attention heads of the language model."""
    num_kv_heads: int = 2
    """Heads of keys and values."""
    intermediate_size: int = 8960
    """Width of the language model's MLPs."""
    vocab_size: int = 151936
    """Tokens of the language."""
    rope_theta: float = 1e6
    """Base of the rotary position embedding."""
    mrope_section: list[int] = [16, 24, 24]
    """Frequencies for time, height and width; together half the width of a head."""
    vision_depth: int = 32
    """Blocks of the vision tower."""
    vision_width: int = 1280
    """Width of the vision tower."""
    vision_heads: int = 16
    """Attention heads of the vision tower."""
    patch_size: int = 14
    """Side of a patch in pixels. Four patches become one token of the language model."""
    final_norm: bool = True
    """Whether features are taken after the final norm; GR00T N1.7 takes them before it."""
    system_prompt: str | None = "You are a helpful assistant."
    """The first turn of the chat; null leaves out all marks of a chat."""
    begins_answer: bool = True
    """Whether the chat ends with the beginning of an answer; GR00T N1.7 leaves it out."""
    instructions: typing.Literal["as_given", "formal"] = "as_given"
    """How an instruction is written into a prompt. formal: in small letters and without
    punctuation, as in GR00T N1.7."""

    def cleaned(self, instruction: str) -> str:
        if self.instructions == "as_given":
            return instruction
        return re.sub(r"[^\w\s]", "", instruction.lower())

    @property
    def width(self) -> int:
        return self.hidden_size

    def __post_init__(self):
        side = 2 * self.patch_size
        if any(pixels % side for pixels in self.image.size):
            raise ValueError(
                f"image.size is {self.image.size}, allowed: multiples of {side} (two patches)"
            )
        half = self._head_width() // 2
        if sum(self.mrope_section) != half or len(self.mrope_section) != 3:
            raise ValueError(
                f"mrope_section is {self.mrope_section}, allowed: three numbers whose sum is {half}"
            )

    def _head_width(self) -> int:
        return self.hidden_size // self.num_heads


_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@configclass(builds="rrf.networks.vlm.qwen.backbone:Qwen2VLBackbone")
class Qwen2VLCfg(QwenVLCfg):
    """Qwen2-VL; by default with the sizes of the 2B model."""

    image: ImageRuleCfg = ImageRuleCfg(mean=_CLIP_MEAN, std=_CLIP_STD)
    """How camera images are brought to the size that the vision tower sees."""
    vision_mlp_ratio: float = 4.0
    """Width of the vision tower's MLPs, relative to its width."""


@configclass(builds="rrf.networks.vlm.qwen.backbone:Qwen3VLBackbone")
class Qwen3VLCfg(QwenVLCfg):
    """Qwen3-VL; by default with the sizes of the 2B model."""

    image: ImageRuleCfg = ImageRuleCfg(size=(224, 224))
    """How camera images are brought to the size that the vision tower sees."""
    hidden_size: int = 2048
    """Width of the language model."""
    num_heads: int = 16
    """Attention heads of the language model."""
    num_kv_heads: int = 8
    """Heads of keys and values."""
    head_dim: int = 128
    """Width of a head of the language model."""
    intermediate_size: int = 6144
    """Width of the language model's MLPs."""
    rope_theta: float = 5e6
    """Base of the rotary position embedding."""
    mrope_section: list[int] = [24, 20, 20]
    """Frequencies for time, height and width; together half the width of a head."""
    vision_depth: int = 24
    """Blocks of the vision tower."""
    vision_width: int = 1024
    """Width of the vision tower."""
    vision_intermediate: int = 4096
    """Width of the vision tower's MLPs."""
    patch_size: int = 16
    """Side of a patch in pixels. Four patches become one token of the language model."""
    num_position_embeddings: int = 2304
    """Learned positions of patches, a square number; they are interpolated to the image's grid."""
    deepstack: list[int] = [5, 11, 17]
    """Blocks of the vision tower whose features are added to the first layers of the language
    model (arXiv:2406.04334)."""
    system_prompt: str | None = ""
    """The first turn of the chat, if not empty; null leaves out all marks of a chat."""

    def __post_init__(self):
        super().__post_init__()
        if len(self.deepstack) > self.num_layers or any(
            not 0 <= block < self.vision_depth for block in self.deepstack
        ):
            raise ValueError(
                f"deepstack is {self.deepstack}, allowed: blocks 0 to {self.vision_depth - 1} of "
                f"the vision tower, at most {self.num_layers} of them"
            )

    def _head_width(self) -> int:
        return self.head_dim
