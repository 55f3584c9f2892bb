"""The config of the mock backbone. No torch here."""

from rrf.config import configclass
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg


@configclass(builds="rrf.networks.vlm.mock:MockBackbone")
class MockBackboneCfg(BackboneCfg):
    """Fixed random projections of patches and words."""

    image: ImageRuleCfg = ImageRuleCfg(size=(64, 64))
    """How camera images are brought to the size that the vision tower sees."""
    hidden_size: int = 64
    """Width of the features of a token."""
    patch_size: int = 16
    """Height and width of the patches that an image is cut into, in pixels."""

    @property
    def width(self) -> int:
        return self.hidden_size

    def __post_init__(self):
        if any(side % self.patch_size for side in self.image.size):
            raise ValueError(
                f"patch_size is {self.patch_size}, allowed: a divisor of the image size "
                f"{self.image.size}"
            )
