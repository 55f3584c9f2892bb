"""The config of OpenVLA's backbone (arXiv:2406.09246; Prismatic, arXiv:2402.07865). No torch here.

The defaults are the sizes of the published 7 B model.
"""

import math
import typing

from rrf.config import Cfg, configclass
from rrf.networks.vlm.configs import Ability, BackboneCfg, ImageRuleCfg

RandomWeights = typing.Literal["stock", "keep_variance"]
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@configclass
class TowerCfg(Cfg):
    """A vision transformer. Its last block, its norm and its attention pool are a part of published
    weights, but nothing reads them."""

    width: int = 1024
    """Width of the features of a patch."""
    depth: int = 24
    """Number of blocks. The features are those of the second-to-last block."""
    num_heads: int = 16
    """Attention heads per block."""
    mlp_features: int = 4096
    """Width of the hidden layer of each block's MLP."""
    patch_size: int = 14
    """Height and width of a patch in pixels."""
    class_token: bool = False
    """Whether a class token stands before the patches."""
    num_registers: int = 0
    """Register tokens before the patches (arXiv:2309.16588)."""
    layer_scale: float | None = None
    """Initial scale of what each block adds; null for no such scale."""
    attention_pool: bool = False
    """Whether the weights have an attention pool."""
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Subtracted from the channels, which are 0 to 1 before."""
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Divides the channels after that."""

    def __post_init__(self):
        if self.depth < 2 or self.width % self.num_heads:
            raise ValueError(
                f"depth is {self.depth}, width {self.width} and num_heads {self.num_heads}, "
                "allowed: a depth of 2 or more, and a width that num_heads divides"
            )


@configclass
class LlamaCfg(Cfg):
    """The language model."""

    vocabulary_size: int = 32064
    """Number of tokens, with those that only fill up a block of 64."""
    width: int = 4096
    """Width of the features of a token."""
    mlp_features: int = 11008
    """Width of the hidden layer of each MLP."""
    depth: int = 32
    """Number of layers."""
    num_heads: int = 32
    """Attention heads per layer."""
    num_key_value_heads: int = 32
    """Heads of keys and values per layer."""
    max_tokens: int = 2048
    """Longest sequence that the model is made for."""
    norm_eps: float = 1e-6
    """Added to the mean square in the norms."""
    rope_theta: float = 10000.0
    """Base of the rotary position embedding."""

    def __post_init__(self):
        if self.width % self.num_heads or self.num_heads % self.num_key_value_heads:
            raise ValueError(
                f"width is {self.width}, num_heads {self.num_heads} and num_key_value_heads "
                f"{self.num_key_value_heads}, allowed: each a multiple of the next"
            )


OPENVLA_IMAGE = ImageRuleCfg(fit="stretch", filter="lanczos", keeps=math.sqrt(0.9))
"""How OpenVLA sees images: of 224 pixels, and of these the middle 90 %, as the random crops of its
training leave."""


@configclass(builds="rrf.networks.vlm.prismatic.backbone:PrismaticBackbone")
class PrismaticCfg(BackboneCfg):
    """DINOv2 and SigLIP side by side, a projector, and Llama."""

    abilities: typing.ClassVar[frozenset[Ability]] = frozenset(
        {"pooled", "tokens", "slots", "slot_words", "language"}
    )

    image: ImageRuleCfg = ImageRuleCfg(fit="stretch")
    """How camera images are brought to the size that both towers see. Its mean and std are not
    used: each tower has its own."""
    featurizer: TowerCfg = TowerCfg(
        class_token=True,
        num_registers=4,
        layer_scale=1e-5,
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
    )
    """The first tower, DINOv2 ViT-L/14 with registers."""
    fused_featurizer: TowerCfg = TowerCfg(
        width=1152, depth=27, mlp_features=4304, attention_pool=True
    )
    """The second tower, SigLIP so400m/14."""
    language: LlamaCfg = LlamaCfg()
    """The language model, Llama 2 7B."""
    prompt_suffix_ids: list[int] = [29871]
    """Tokens at the end of every prompt that does not end with them."""
    slot_suffix_ids: list[int] = [2]
    """Tokens after the slots."""
    slot_output: typing.Literal["before", "own"] = "before"
    """Where the features of a slot are read. before: at the token before it, like the prediction of
    a next token, as OpenVLA-OFT does. own: at the slot itself."""
    film: bool = False
    """Scale and shift the patches in every block of the towers by the mean embedding of the prompt
    (FiLM, arXiv:1709.07871), as OpenVLA-OFT+ does."""
    random_weights: RandomWeights = "stock"
    """How weights begin if none are loaded. stock: as timm, torch and transformers draw them, which
    in a small model makes almost the same tokens of all images. keep_variance: weights that neither
    shrink nor enlarge what passes, and towers that know where a patch is."""

    instructions: typing.Literal["as_given", "lower"] = "as_given"
    """How an instruction is written into a prompt. lower: in small letters, as OpenVLA does."""

    def cleaned(self, instruction: str) -> str:
        return instruction.lower() if self.instructions == "lower" else instruction

    @property
    def width(self) -> int:
        return self.language.width

    def __post_init__(self):
        for name in ("featurizer", "fused_featurizer"):
            size = getattr(self, name).patch_size
            if any(side % size for side in self.image.size):
                raise ValueError(
                    f"{name}.patch_size is {size}, allowed: a divisor of the image size "
                    f"{self.image.size}"
                )
        if self.featurizer.patch_size != self.fused_featurizer.patch_size:
            raise ValueError(
                f"featurizer.patch_size is {self.featurizer.patch_size} and "
                f"fused_featurizer.patch_size is {self.fused_featurizer.patch_size}, allowed: the "
                "same, because the features of both are joined patch by patch"
            )
        last = max([*self.prompt_suffix_ids, *self.slot_suffix_ids], default=0)
        if last >= self.language.vocabulary_size:
            raise ValueError(
                f"prompt_suffix_ids or slot_suffix_ids hold {last}, allowed: below "
                f"language.vocabulary_size, {self.language.vocabulary_size}"
            )
