"""The config of a diffusion head. No torch here."""

import typing

from rrf.config import configclass, require_at_least_one
from rrf.policies.vla.configs import ActionHeadCfg, require_widths


@configclass(builds="rrf.policies.vla.heads.diffusion:DiffusionHead")
class DiffusionHeadCfg(ActionHeadCfg):
    """Predicts the noise in a chunk (arXiv:2006.11239) and removes it in a few steps
    (arXiv:2010.02502)."""

    hidden_features: list[int] = [256, 256]
    """Width of each hidden layer of the network that predicts the noise."""
    num_train_steps: int = 100
    """Number of noise levels that are trained."""
    num_denoise_steps: int = 10
    """Number of denoising steps; it must divide num_train_steps."""
    eta: float = 0.0
    """Randomness of a denoising step: 0 for none (DDIM), 1 for the posterior's std (DDPM). Policy
    gradients need it above 0, because there is no density without it."""
    stochastic_steps: typing.Literal["one", "all"] = "all"
    """one: a single denoising step is random, chosen anew for every sample. all: every step but the
    last is random."""
    clip: float | None = 1.0
    """Predicted actions are clipped to this size, in normalised units, during denoising. 1 fits
    actions normalised to [-1, 1]; null for none."""
    num_noise_draws: int = 1
    """Noise levels at which the loss is computed for each frame."""

    @property
    def lacks_density(self) -> str | None:
        if self.eta:
            return None
        return (
            "a diffusion head with eta = 0 has no density; set policy.head.eta above 0, for "
            "instance to 1"
        )

    def __post_init__(self):
        require_widths(self.hidden_features)
        if self.num_denoise_steps < 2 or self.num_train_steps % self.num_denoise_steps:
            raise ValueError(
                f"num_denoise_steps is {self.num_denoise_steps}, allowed: 2 or more, and a divisor "
                f"of num_train_steps ({self.num_train_steps})"
            )
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta is {self.eta}, allowed: 0 to 1")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip is {self.clip}, allowed: above 0, or null for none")
        require_at_least_one(self, "num_noise_draws")
