"""The config of a diffusion transformer. No torch here."""

from rrf.config import Cfg, configclass


@configclass
class DiTCfg(Cfg):
    """A transformer over the tokens of a noisy chunk (arXiv:2212.09748). Every second block attends
    to a backbone's tokens, the others to the chunk itself."""

    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Number of attention heads."""
    head_width: int = 64
    """Width of each attention head. Times the number of heads, it is the width of a token."""
    dropout: float = 0.0
    """Dropout in every block."""
    interleaves: bool = True
    """Blocks 1, 3, ... attend to the chunk itself. False: all blocks attend to the backbone."""

    @property
    def width(self) -> int:
        """Width of a token."""
        return self.num_heads * self.head_width

    def __post_init__(self):
        if min(self.num_layers, self.num_heads, self.head_width) < 1 or not 0 <= self.dropout < 1:
            raise ValueError(
                f"num_layers, num_heads, head_width, dropout are {self.num_layers}, "
                f"{self.num_heads}, {self.head_width}, {self.dropout}, allowed: sizes of 1 or "
                "more, and dropout from 0 to below 1"
            )
