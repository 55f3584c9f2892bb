"""What all backbones of vision-language models have in their configs. No torch here.

The config alone determines the architecture, so a checkpoint is read without the files that the
weights once came from.
"""

import typing

from rrf.config import Cfg, configclass

Ability = typing.Literal["pooled", "tokens", "slots", "slot_words", "layers", "language"]
"""What a head can read of a backbone; see `ABILITIES`."""
ABILITIES: dict[Ability, str] = {
    "pooled": "one feature vector per observation",
    "tokens": "the features of all tokens",
    "slots": "the features of empty slots after the prompt, which attend to each other",
    "slot_words": "the probabilities of the words of its language in such slots",
    "layers": "keys and values of every layer, for an action expert that attends to them",
    "language": "the probability of the next token of its language",
}


@configclass
class TokenizerCfg(Cfg):
    """How a prompt becomes tokens."""

    files: str | None = None
    """Directory with a tokenizer.json, or NAME of `rrf models setup`. Its content is saved with
    every checkpoint, so it is only needed to begin a training. null: words of a fixed
    vocabulary."""
    words: list[str] = []
    """Without files: the words in lower case that have a token of their own. All other words share
    one."""

    def __post_init__(self):
        if self.files is not None and self.words:
            raise ValueError("files and words are given, allowed: one of them")
        if len(set(self.words)) != len(self.words):
            doubled = next(word for word in self.words if self.words.count(word) > 1)
            raise ValueError(f"words holds '{doubled}' more than once")


@configclass
class ImageRuleCfg(Cfg):
    """How an image of any size becomes the input of a vision tower."""

    size: tuple[int, int] = (224, 224)
    """Height and width in pixels that the tower sees."""
    fit: typing.Literal["pad", "stretch", "crop", "shortest"] = "pad"
    """If the ratio of the sides differs. pad: black bars around the whole image. stretch: the ratio
    changes. crop: the longer side is cut on both ends. shortest: the shorter side becomes that of
    `size`, the ratio is kept, and in the end the image is stretched to `size` (bicubic)."""
    filter: typing.Literal["bilinear", "bicubic", "lanczos", "area"] = "bilinear"
    """How an image is resized, always with antialiasing. bilinear: as Pillow and JAX do. bicubic:
    as torchvision does. lanczos: as TensorFlow's lanczos3. area: the mean of the pixels that become
    one, as OpenCV's INTER_AREA."""
    jpeg_quality: int | None = None
    """Quality of a JPEG, 1 to 95, that images pass through first, as in OpenVLA's evaluations. null
    for none."""
    keeps: float = 1.0
    """Part of each side that is kept, about the centre; the kept part is brought to `size`. 1 keeps
    all."""
    cut: typing.Literal["points", "pixels", "before"] = "points"
    """How the centre is kept. points: after an image was resized, sampled bilinearly at points from
    edge to edge, as TensorFlow's crop_and_resize does. pixels: after it was resized, whole pixels
    are cut off, and the rest is resized by `filter`. before: whole pixels are cut off the recorded
    image."""
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Subtracted from the channels, which are 0 to 1 before."""
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    """Divides the channels after that."""

    def __post_init__(self):
        if min(self.size) < 1 or min(self.std) <= 0:
            raise ValueError(
                f"size is {self.size} and std is {self.std}, allowed: sizes of 1 or more, and std "
                "above 0"
            )
        if not 0 < self.keeps <= 1:
            raise ValueError(f"keeps is {self.keeps}, allowed: above 0, at most 1")
        if self.jpeg_quality is not None and not 1 <= self.jpeg_quality <= 95:
            raise ValueError(f"jpeg_quality is {self.jpeg_quality}, allowed: 1 to 95, or null")


@configclass
class LoRACfg(Cfg):
    """Low-rank adapters beside frozen weights (arXiv:2106.09685)."""

    rank: int = 16
    """Rank of the adapters."""
    alpha: int = 16
    """The adapters' product is scaled by alpha / rank."""
    dropout: float = 0.0
    """Dropout before the adapters. Must be 0 in reinforcement learning."""
    target: str | None = None
    """Regular expression for the full names, within the backbone, of the linear layers that get
    adapters. null: the attention projections of the language model."""

    def __post_init__(self):
        if self.rank < 1 or self.alpha < 1 or not 0 <= self.dropout < 1:
            raise ValueError(
                f"rank is {self.rank}, alpha {self.alpha} and dropout {self.dropout}, allowed: a "
                "rank of 1 or more, alpha of 1 or more, dropout from 0 to below 1"
            )


@configclass
class BackboneCfg(Cfg):
    """A vision-language model without its output layer."""

    abilities: typing.ClassVar[frozenset[Ability]] = frozenset({"pooled", "tokens"})
    """What heads can read of it."""

    patches_per_token: typing.ClassVar[int] = 1
    """Patches of the vision tower that become one token of the language model."""

    weights: str | None = None
    """The pretrained weights: a directory with safetensors files, or NAME of `rrf models setup`.
    null: random weights."""
    tokenizer: TokenizerCfg = TokenizerCfg()
    """The tokenizer of the prompt."""
    image: ImageRuleCfg = ImageRuleCfg()
    """How camera images are brought to the size that the vision tower sees."""
    tuning: typing.Literal["full", "frozen"] | LoRACfg = "full"
    """full: all weights are trained. frozen: none. A LoRACfg: only adapters are trained."""
    gradient_checkpointing: bool = False
    """Compute activations twice instead of keeping them: less memory, about a third more time."""
    dtype: typing.Literal["fp32", "bf16"] = "fp32"
    """Number format of the weights."""

    def cleaned(self, instruction: str) -> str:
        """An instruction as a prompt of this family holds it."""
        return instruction

    @property
    def width(self) -> int:
        """Width D of the features of a token."""
        raise NotImplementedError

    @property
    def layer_shape(self) -> tuple[int, int, int]:
        """Number of layers, heads of keys and values in each, and width of a head; only with the
        ability "layers"."""
        raise NotImplementedError
