"""Action heads: they map a feature vector to a chunk of normalised actions, and define its loss.

* Regression: smooth L1 loss on the chunk.
* Gaussian: a mean per element, and a std that does not depend on the observation.
* Discrete tokens: one categorical distribution per step and dimension. All are decoded in parallel,
  as in OpenVLA-OFT (arXiv:2502.19645). The labels are soft, so that a neighbouring bin costs less
  than a far one.

Legend: B batch, F features, H steps in an action chunk, A action dimension, N token bins.
"""

import math
import typing
from collections.abc import Sequence

import torch
from torch import nn

from rrf.policies.policy import Generators
from rrf.policies.vla.configs import (
    DiscreteTokenHeadCfg,
    GaussianDensityCfg,
    GaussianHeadCfg,
    RegressionHeadCfg,
)
from rrf.policies.vla.flow_matching import gaussian_entropy, gaussian_log_prob
from rrf.policies.vla.losses import (
    masked_mean,
    masked_smooth_l1,
    masked_token_cross_entropy,
    soft_labels,
)
from rrf.policies.vla.real_time import RunningChunk

_OFFSET_STREAM = 0x0FF5E7  # separates the stream of an episode's offset from its other noise


class HeadSample(typing.NamedTuple):
    """A chunk sampled by a head, still in normalised units."""

    actions: torch.Tensor  # float32 [B, H, A]
    log_prob: torch.Tensor | None  # float32 [B, H * A]
    replay: dict[str, torch.Tensor]  # inputs of `evaluate`, which computes the probability again


class ActionHead(nn.Module):
    """The interface of a policy's head.

    `features` are [B, F] if its config says `reads = "pooled"`, else a
    `rrf.policies.vla.context.Context`.

    Args:
        chunk_length: H.
        action_dim: A.
        is_executed: bool [H, A], False for padding; None if there is no padding.
    """

    is_executed: torch.Tensor
    is_left_out: torch.Tensor | None
    """bool [A], True for dimensions that only other robots have; None if there are none."""

    def __init__(self, chunk_length: int, action_dim: int, is_executed: torch.Tensor | None = None):
        super().__init__()
        self.chunk_length, self.action_dim = chunk_length, action_dim
        self.noise_factor = 1.0  # set by `Policy.set_noise_factor`
        if is_executed is None:
            is_executed = torch.ones(chunk_length, action_dim, dtype=torch.bool)
        self.register_buffer("is_executed", is_executed, persistent=False)
        self.register_buffer("is_left_out", None, persistent=False)

    def leave_out(self, dims: Sequence[int]) -> None:
        """Act without these dimensions, which only other robots have: in training on several, the
        head learned nothing about them for this one."""
        if dims:
            self.is_left_out = torch.zeros_like(self.is_executed[0])
            self.is_left_out[list(dims)] = True

    def without_left_out(self, values: torch.Tensor) -> torch.Tensor:
        """[..., A], with 0 in the dimensions of `leave_out`."""
        if self.is_left_out is None:
            return values
        return values.masked_fill(self.is_left_out, 0.0)

    def sample(self, features: typing.Any, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk for each row of features."""
        raise NotImplementedError

    def evaluate(
        self, features: typing.Any, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of the sampled chunk, each float32 [B, H * A]."""
        raise NotImplementedError

    def loss(
        self, features: typing.Any, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The supervised loss and metrics. Both ignore padding: `is_pad` is [B, H] or
        [B, H, A], see `rrf.policies.vla.losses`."""
        raise NotImplementedError

    def assets(self) -> dict[str, str]:
        """Files that a checkpoint needs besides config and weights: name -> content."""
        return {}

    def resume(
        self, features: typing.Any, running: RunningChunk, generator: Generators, greedy: bool
    ) -> HeadSample:
        """Sample chunks that continue those being executed (real-time chunking). They have no
        log-probability.

        Raises:
            NotImplementedError: For a head that does not denoise.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot continue a running chunk; use a head that denoises: "
            "FlowMatchingHeadCfg, DiffusionHeadCfg, DiTHeadCfg, GrootHeadCfg or PiExpertHeadCfg"
        )


class RegressionHead(ActionHead):
    """Predicts the chunk itself. Greedy and sampled actions are the same."""

    def __init__(
        self, cfg: RegressionHeadCfg, in_features: int, chunk_length: int, action_dim: int
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        self.output = output_layer(in_features, chunk_length * action_dim)

    def forward(self, features_bf: torch.Tensor) -> torch.Tensor:
        """The chunk, [B, H, A]."""
        return self.output(features_bf).float().unflatten(1, (self.chunk_length, self.action_dim))

    def sample(self, features: torch.Tensor, generator: Generators, greedy: bool) -> HeadSample:
        return HeadSample(self(features), None, {})

    def evaluate(
        self, features: torch.Tensor, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError(
            "a regression head has no density and cannot be trained by policy gradients; use a "
            "token head, a Gaussian head or a flow-matching head"
        )

    def loss(
        self, features: torch.Tensor, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        prediction_bha = self(features)
        loss = masked_smooth_l1(prediction_bha, target_bha, is_pad, self.cfg.huber_beta)
        error = masked_mean((prediction_bha.detach() - target_bha).abs(), is_pad)
        return loss, {"loss/action_l1": error.item()}


class GaussianDensity(ActionHead):
    """A normal distribution per element around a prediction, which a subclass makes in `forward`.
    The greedy action is the prediction.

    The std is one parameter per element of the chunk. The supervised loss does not change it;
    policy gradients train it.

    With `persistent_share`, a part of the noise is one constant offset per episode and action
    dimension. An episode then explores in one direction instead of jittering around the mean
    (arXiv:2312.11091 for PPO). The distribution of each single element, and therefore its
    log-probability, is the same as with independent noise. The surrogate's gradient is then the
    exact gradient times the correlation matrix of the noise, which is also an ascent direction.
    """

    def __init__(self, cfg: GaussianDensityCfg, chunk_length: int, action_dim: int):
        super().__init__(chunk_length, action_dim)
        self.density = cfg
        initial_ha = torch.full((chunk_length, action_dim), math.log(cfg.initial_std))
        self.log_std_ha = nn.Parameter(initial_ha)

    def forward(self, features: typing.Any) -> torch.Tensor:
        """The mean, float32 [B, H, A]."""
        raise NotImplementedError

    def sample(self, features: typing.Any, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk; `replay` holds it as `actions` [B, H, A], in normalised units."""
        actions, std_ha = self(features), self._std()
        mean = actions
        if not greedy:
            uniforms = uniform_rows(len(mean), std_ha.numel(), generator, mean.device)
            noise = to_normal(uniforms).view_as(mean)
            noise = partly_persistent(noise, self.density.persistent_share, generator)
            actions = mean + std_ha * noise
        log_prob = gaussian_log_prob(actions, mean, std_ha)
        return HeadSample(actions, log_prob.flatten(1), {"actions": actions})

    def evaluate(
        self, features: typing.Any, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mean_bha, std_ha = self(features), self._std()
        log_prob_bha = gaussian_log_prob(replay["actions"], mean_bha, std_ha)
        entropy_bha = gaussian_entropy(std_ha).expand_as(log_prob_bha)
        return log_prob_bha.flatten(1), entropy_bha.flatten(1)

    def _std(self) -> torch.Tensor:
        # Clamp and temperature are applied only here, so sampling and evaluation cannot disagree.
        cfg = self.density
        clamped_ha = self.log_std_ha.clamp(math.log(cfg.min_std), math.log(cfg.max_std))
        # The gradient passes through the clamp; otherwise a std that left the range could never
        # return into it.
        log_std_ha = self.log_std_ha + (clamped_ha - self.log_std_ha).detach()
        return log_std_ha.exp() * (cfg.temperature * self.noise_factor)


class GaussianHead(GaussianDensity):
    """Predicts the mean of a normal distribution per element with one layer."""

    def __init__(self, cfg: GaussianHeadCfg, in_features: int, chunk_length: int, action_dim: int):
        super().__init__(cfg, chunk_length, action_dim)
        self.cfg = cfg
        self.output = output_layer(in_features, chunk_length * action_dim)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        # In bfloat16, the density would differ between sampling and training, so use float32.
        with torch.autocast(features.device.type, enabled=False):
            mean_bt = self.output(features.float())
        return mean_bt.unflatten(1, (self.chunk_length, self.action_dim))

    def loss(
        self, features: torch.Tensor, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        mean_bha = self(features)
        loss = masked_smooth_l1(mean_bha, target_bha, is_pad, self.cfg.huber_beta)
        error = masked_mean((mean_bha.detach() - target_bha).abs(), is_pad)
        return loss, {"loss/action_l1": error.item()}


class DiscreteTokenHead(ActionHead):
    """Predicts a distribution over bins for every step and dimension.

    The N bins represent N evenly spaced values from -1 to 1.
    """

    centers: torch.Tensor

    def __init__(
        self, cfg: DiscreteTokenHeadCfg, in_features: int, chunk_length: int, action_dim: int
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        self.output = output_layer(in_features, chunk_length * action_dim * cfg.num_bins)
        self.register_buffer("centers", torch.linspace(-1.0, 1.0, cfg.num_bins))

    def forward(self, features_bf: torch.Tensor) -> torch.Tensor:
        """Logits before the temperature, [B, H * A, N]."""
        return self.output(features_bf).float().unflatten(1, (-1, self.cfg.num_bins))

    def sample(self, features: torch.Tensor, generator: Generators, greedy: bool) -> HeadSample:
        log_probs_btn = self._log_probs(features)
        tokens_bt = log_probs_btn.argmax(-1) if greedy else _draw(log_probs_btn.exp(), generator)
        actions = self.centers[tokens_bt].unflatten(1, (self.chunk_length, self.action_dim))
        return HeadSample(actions, _chosen(log_probs_btn, tokens_bt), {"tokens": tokens_bt})

    def evaluate(
        self, features: torch.Tensor, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs_btn = self._log_probs(features)
        entropy_bt = -(log_probs_btn.exp() * log_probs_btn).sum(-1)
        return _chosen(log_probs_btn, replay["tokens"]), entropy_bt

    def loss(
        self, features: torch.Tensor, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        logits_bhan = self(features).unflatten(1, (self.chunk_length, self.action_dim))
        labels_bhan = soft_labels(
            target_bha, self.centers, self.cfg.label_sigma_bins, self.cfg.label_smoothing
        )
        loss = masked_token_cross_entropy(logits_bhan, labels_bhan, is_pad)
        mode_bha = self.centers[logits_bhan.detach().argmax(-1)]
        return loss, {"loss/action_l1": masked_mean((mode_bha - target_bha).abs(), is_pad).item()}

    def _log_probs(self, features: torch.Tensor) -> torch.Tensor:
        # The temperature is applied only here, so sampling and evaluation cannot disagree.
        temperature = self.cfg.temperature * self.noise_factor
        return torch.log_softmax(self(features) / temperature, dim=-1)


def uniform_rows(
    batch: int, width: int, generator: Generators, device: torch.device
) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64 [batch, width].

    They are drawn on the generator's device, so that a seed gives the same numbers wherever the
    policy runs. On the CPU the rows are filled in order, so that the numbers of a row do not depend
    on how many rows follow. With one generator per row, they do not depend on other rows at all.
    """
    if isinstance(generator, Sequence):
        assert len(generator) == batch, f"{len(generator)} generators for {batch} rows"
        return torch.cat([uniform_rows(1, width, each, device) for each in generator])
    source = generator.device if generator else device
    drawn = torch.rand(batch, width, generator=generator, dtype=torch.float64, device=source)
    return drawn.to(device)


def to_normal(uniforms: torch.Tensor) -> torch.Tensor:
    """Standard normal numbers, float32, by the inverse cumulative distribution function.

    Each needs exactly one uniform number, unlike with `randn`, which fills blocks of 16.
    """
    return torch.special.ndtri(uniforms.clamp(min=2.0**-54)).float()


def partly_persistent(noise_bha: torch.Tensor, share: float, generator: Generators) -> torch.Tensor:
    """Standard normal noise of which this share of the variance is one offset per episode and
    action dimension."""
    if not share:
        return noise_bha
    batch, _, width = noise_bha.shape
    uniforms = episode_rows(batch, width, generator, _OFFSET_STREAM, noise_bha.device)
    return math.sqrt(1 - share) * noise_bha + math.sqrt(share) * to_normal(uniforms).unsqueeze(1)


def episode_rows(
    num_rows: int, width: int, generator: Generators, stream: int, device: torch.device
) -> torch.Tensor:
    """Uniform numbers [num_rows, width] that are the same at every choice of an episode.

    They are derived from the seed of the episode's generator, so that no state has to be kept
    during an episode. One generator for all rows draws them anew.

    Args:
        stream: A number that tells this use of the seed from others.
    """
    if isinstance(generator, Sequence):
        seeds = [each.initial_seed() ^ stream for each in generator]
        generator = [torch.Generator().manual_seed(seed) for seed in seeds]
    return uniform_rows(num_rows, width, generator, device)


def output_layer(in_features: int, out_features: int) -> nn.Linear:
    """The last layer of a head. Its weights are small: training starts near the mean action."""
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    return layer


def _chosen(log_probs_btn: torch.Tensor, tokens_bt: torch.Tensor) -> torch.Tensor:
    return log_probs_btn.gather(-1, tokens_bt.unsqueeze(-1)).squeeze(-1)


def _draw(probs_btn: torch.Tensor, generator: Generators) -> torch.Tensor:
    if isinstance(generator, Sequence):
        return torch.cat([_draw(p, g) for p, g in zip(probs_btn.split(1), generator, strict=True)])
    # Drawn on the generator's device, so that a seed gives the same numbers on every device.
    device = generator.device if generator else probs_btn.device
    rows = probs_btn.flatten(0, 1).to(device)
    drawn = torch.multinomial(rows, 1, generator=generator)
    return drawn.view(probs_btn.shape[:2]).to(probs_btn.device)
