"""Action heads that denoise a chunk with a learned velocity, and that have a density.

The velocity is trained by flow matching (arXiv:2210.02747). See `flow_matching` for the random
steps and their sources, and `denoising_head` for the probability of a sample.

A head may denoise more dimensions than the robot has: those of a pretrained model. They are trained
towards 0 or not at all, and are never executed.

Legend: B batch, H steps in an action chunk, A action dimension of the head.
"""

import typing

import torch
from torch.nn import functional

from rrf.policies.vla.configs import FlowHeadCfg
from rrf.policies.vla.denoising_head import DenoisingHead
from rrf.policies.vla.flow_matching import (
    Transition,
    cps_step,
    endpoints,
    noise_share,
    noised,
    ode_step,
    reinflow_step,
    sde_step,
    velocity_target,
)
from rrf.policies.vla.losses import masked_mean, without_absent

AnyCfg = typing.TypeVar("AnyCfg", bound=FlowHeadCfg)


class FlowHead(DenoisingHead, typing.Generic[AnyCfg]):
    """Denoises a chunk by a velocity. A greedy chunk follows the ODE. A subclass predicts the
    velocity."""

    cfg: AnyCfg

    @property
    def num_steps(self) -> int:
        return self.cfg.num_denoise_steps

    @property
    def num_random_steps(self) -> int:
        # The last step of CPS adds no noise, so it has no density.
        return self.cfg.num_denoise_steps - (self.cfg.noise_method == "flow_cps")

    @property
    def has_single_random_step(self) -> bool:
        return self.cfg.stochastic_steps == "one"

    @property
    def start_std(self) -> float:
        return self.cfg.start_noise

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

    def share(self, steps_b: torch.Tensor) -> torch.Tensor:
        """The share of noise, float32 [B], before denoising step `steps_b`."""
        return noise_share(steps_b, self.cfg.num_denoise_steps)

    def draw_share(self, batch: int, device: torch.device) -> torch.Tensor:
        """Random shares of noise to train with, float32 [B], from torch's global generator."""
        return torch.rand(batch, device=device)

    def loss(
        self, features: typing.Any, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared error of the velocity at a random time; the mean over `num_noise_draws` times.

        `loss/action_l1` is the error of the action that this velocity points to, in the dimensions
        that the robot has. Time and noise come from torch's global random generator.
        """
        given, dims = self.given(features), target_bha.shape[-1]
        wide_bha = functional.pad(target_bha, (0, self.action_dim - dims))
        draws = [self._draw_error(given, wide_bha, is_pad) for _ in range(self.cfg.num_noise_draws)]
        trained = self.action_dim if self.cfg.trains_padding else dims
        counted = is_pad
        if is_pad.ndim == 3 and trained > dims:
            beyond_bh1 = is_pad.all(-1, keepdim=True)
            counted = torch.cat([is_pad, beyond_bh1.expand(-1, -1, trained - dims)], 2)
        losses = [masked_mean(error_bha[..., :trained], counted) for error_bha, _ in draws]
        errors = [(action - target_bha).abs() for action in (a[..., :dims] for _, a in draws)]
        action_l1 = torch.stack([masked_mean(error, is_pad) for error in errors]).mean()
        return torch.stack(losses).mean(), {"loss/action_l1": action_l1.item()}

    def _draw_error(
        self, given: typing.Any, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The squared error of the velocity at a random time, and the action it points to."""
        convention = self.cfg.time_convention
        noise_bha = without_absent(torch.randn_like(target_bha), is_pad)
        share_b = self.draw_share(len(target_bha), target_bha.device)
        x_bha = noised(target_bha, noise_bha, share_b)
        velocity_bha, _ = self.velocity(given, x_bha, share_b)
        wanted_bha = velocity_target(target_bha, noise_bha, convention)
        error_bha = functional.mse_loss(velocity_bha, wanted_bha, reduction="none")
        return error_bha, endpoints(x_bha, velocity_bha.detach(), share_b, convention)[0]

    def transition(self, given: typing.Any) -> Transition:
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
