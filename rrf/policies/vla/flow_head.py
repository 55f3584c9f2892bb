"""Action heads that denoise a chunk with a learned velocity, and that have a density.

The velocity is trained by flow matching (arXiv:2210.02747). See `flow_matching` for the random
steps and their sources. The probability of a sample is that of its random denoising steps, not that
of the action:

* `stochastic_steps="one"`: one step per sample is random, chosen among those with std > 0. The
  other steps follow the ODE. Training evaluates the network once per sample. The generator chooses
  an index for every sample (pi_RL's code chooses one for the whole batch).
* `"all"`: every step is random. The log-probability is the mean over the standard normal density of
  the start and the densities of the N steps (`joint_mean` explains why it is the mean).

A head may denoise more dimensions than the robot has: those of a pretrained model. They are trained
towards 0 or not at all, and are never executed.

Legend: B batch, N denoising steps, H steps in an action chunk, A action dimension of the head.
"""

import typing

import torch
from torch.nn import functional

from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import (
    ActionHead,
    HeadSample,
    to_normal,
    uniform_rows,
)
from rrf.policies.vla.configs import FlowHeadCfg
from rrf.policies.vla.flow_matching import (
    Transition,
    cps_step,
    denoise,
    endpoints,
    gaussian_entropy,
    gaussian_log_prob,
    joint_mean,
    noise_share,
    noised,
    ode_step,
    reinflow_step,
    sde_step,
    step_log_prob,
    velocity_target,
)
from rrf.policies.vla.losses import masked_mean


class FlowHead(ActionHead):
    """Denoises a chunk from normal noise. A greedy chunk starts from zeros and follows the ODE.

    A subclass predicts the velocity. Elements that are not executed are denoised like the others.
    However, their log-probability and entropy are 0, and policy gradients exclude them from every
    mean.
    """

    cfg: FlowHeadCfg

    def velocity(
        self, given: typing.Any, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The velocity in the config's convention and, for ReinFlow, the std times `noise_factor`;
        float32 [B, H, A].

        Args:
            given: What `given` returned.
            x_bha: The noisy chunk.
            share_b: Share of noise in the chunk, from 0 to 1.
        """
        raise NotImplementedError

    def given(self, features: typing.Any) -> typing.Any:
        """What all denoising steps share; computed once per chunk."""
        return features

    def share(self, steps_b: torch.Tensor) -> torch.Tensor:
        """The share of noise, float32 [B], before denoising step `steps_b`."""
        return noise_share(steps_b, self.cfg.num_denoise_steps)

    def draw_share(self, batch: int, device: torch.device) -> torch.Tensor:
        """Random shares of noise to train with, float32 [B], from torch's global generator."""
        return torch.rand(batch, device=device)

    def sample(self, features: typing.Any, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk.

        `replay` holds `chain` [B, N + 1, H, A] and, if a single step is random, its `denoise_index`
        [B]. The log-probability of a greedy chain is its log-probability under sampling; if a
        single step is random, this is step 0.
        """
        transition, batch = self._transition(self.given(features)), len(features)
        device = self.is_executed.device
        if greedy:
            start_bha = torch.zeros(batch, self.chunk_length, self.action_dim, device=device)
            index_b = torch.zeros(batch, dtype=torch.long, device=device)
            normals_bnha = start_bha[:, None]
            is_random_bn = torch.zeros_like(self._random_steps(index_b))
        else:
            index_b, start_bha, normals_bnha = self._draw(batch, generator, device)
            is_random_bn = self._random_steps(index_b)
        normals_bnha = normals_bnha.expand(-1, self.cfg.num_denoise_steps, -1, -1)
        chain, log_probs = denoise(transition, start_bha, normals_bnha, is_random_bn)
        replay = {"chain": chain}
        if self.cfg.stochastic_steps == "one":
            replay["denoise_index"] = index_b
        if greedy:
            return HeadSample(chain[:, -1], self._score(transition, replay)[0], replay)
        log_prob = self._reduce(_standard_log_prob(start_bha), log_probs)
        return HeadSample(chain[:, -1], log_prob, replay)

    def evaluate(
        self, features: typing.Any, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of the chain's random steps, each [B, H * A]."""
        return self._score(self._transition(self.given(features)), replay)

    def loss(
        self, features: typing.Any, target_bha: torch.Tensor, is_pad_bh: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared error of the velocity at a random time; the mean over `num_noise_draws` times.

        `loss/action_l1` is the error of the action that this velocity points to, in the dimensions
        that the robot has. Time and noise come from torch's global random generator.
        """
        given, dims = self.given(features), target_bha.shape[-1]
        wide_bha = functional.pad(target_bha, (0, self.action_dim - dims))
        draws = [self._draw_error(given, wide_bha) for _ in range(self.cfg.num_noise_draws)]
        trained = self.action_dim if self.cfg.trains_padding else dims
        losses = [masked_mean(error_bha[..., :trained], is_pad_bh) for error_bha, _ in draws]
        errors = [(action - target_bha).abs() for action in (a[..., :dims] for _, a in draws)]
        action_l1 = torch.stack([masked_mean(error, is_pad_bh) for error in errors]).mean()
        return torch.stack(losses).mean(), {"loss/action_l1": action_l1.item()}

    def _draw_error(
        self, given: typing.Any, target_bha: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The squared error of the velocity at a random time, and the action it points to."""
        convention = self.cfg.time_convention
        noise_bha = torch.randn_like(target_bha)
        share_b = self.draw_share(len(target_bha), target_bha.device)
        x_bha = noised(target_bha, noise_bha, share_b)
        velocity_bha, _ = self.velocity(given, x_bha, share_b)
        wanted_bha = velocity_target(target_bha, noise_bha, convention)
        error_bha = functional.mse_loss(velocity_bha, wanted_bha, reduction="none")
        return error_bha, endpoints(x_bha, velocity_bha.detach(), share_b, convention)[0]

    @property
    def _num_random_steps(self) -> int:
        # The last step of CPS adds no noise, so it has no density.
        return self.cfg.num_denoise_steps - (self.cfg.noise_method == "flow_cps")

    def _draw(
        self, batch: int, generator: Generators, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Returns index [B], start [B, H, A] and normals [B, number of random steps, H, A].
        num_random = 1 if self.cfg.stochastic_steps == "one" else self.cfg.num_denoise_steps
        width = 1 + (1 + num_random) * self.chunk_length * self.action_dim
        uniforms = uniform_rows(batch, width, generator, device)
        normals = to_normal(uniforms[:, 1:]).unflatten(1, (-1, self.chunk_length, self.action_dim))
        index_b = (uniforms[:, 0] * self._num_random_steps).long()
        return index_b, normals[:, 0], normals[:, 1:]

    def _score(
        self, transition: Transition, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chain = replay["chain"]
        if self.cfg.stochastic_steps == "one":
            steps = [replay["denoise_index"]]
        else:
            steps = torch.arange(self.cfg.num_denoise_steps, device=chain.device)
            steps = list(steps[:, None].expand(-1, len(chain)))
        scores = [step_log_prob(transition, chain, steps_b) for steps_b in steps]
        log_probs, entropies = (torch.stack(parts, 1) for parts in zip(*scores, strict=True))
        start = chain[:, 0]
        return (
            self._reduce(_standard_log_prob(start), log_probs),
            self._reduce(gaussian_entropy(torch.ones_like(start)), entropies),
        )

    def _random_steps(self, index_b: torch.Tensor) -> torch.Tensor:
        num_steps = self.cfg.num_denoise_steps
        if self.cfg.stochastic_steps == "one":
            return functional.one_hot(index_b, num_steps).bool()
        return torch.ones(len(index_b), num_steps, dtype=torch.bool, device=index_b.device)

    def _transition(self, given: typing.Any) -> Transition:
        # Steps become random only here, so sampling and evaluation cannot disagree.
        cfg = self.cfg

        def transition(x_bha: torch.Tensor, steps_b: torch.Tensor):
            velocity_bha, std_bha = self.velocity(given, x_bha, self.share(steps_b))
            step = (x_bha, velocity_bha, steps_b, cfg.num_denoise_steps, cfg.time_convention)
            ode_bha, _ = ode_step(*step)
            if std_bha is not None:
                return ode_bha, *reinflow_step(*step, std_bha)
            random_step = sde_step if cfg.noise_method == "flow_sde" else cps_step
            return ode_bha, *random_step(*step, cfg.noise_level * self.noise_factor)

        return transition

    def _reduce(self, start_bha: torch.Tensor, steps_bnha: torch.Tensor) -> torch.Tensor:
        if self.cfg.stochastic_steps == "one":
            total_bha = steps_bnha.sum(1)  # a single term; those of ODE steps are 0
        else:
            total_bha = joint_mean(start_bha, steps_bnha)
        return torch.where(self.is_executed, total_bha, 0.0).flatten(1)


def _standard_log_prob(x: torch.Tensor) -> torch.Tensor:
    return gaussian_log_prob(x, torch.zeros_like(x), torch.ones_like(x))
