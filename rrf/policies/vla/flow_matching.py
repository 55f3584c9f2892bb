"""Flow matching whose denoising steps are Gaussian: pure functions, and the network for ReinFlow.

A flow-matching policy (arXiv:2210.02747) starts from normal noise and follows a learned velocity to
an action in N steps. The density of this map cannot be computed. pi_RL (arXiv:2510.25889) obtains a
density by drawing the result of a step from N(mean, std^2). There are four kinds of steps:

* `ode_step`: not random; std is 0.
* `sde_step`: Euler-Maruyama on an SDE with the flow's marginals (Flow-GRPO, arXiv:2505.05470). With
  few steps it leaves too much noise, and the noise of the last step stays in the action.
* `cps_step`: coefficients-preserving sampling (arXiv:2509.05952). It replaces a part of the noise
  estimate by fresh noise of the same variance. The last step has std 0.
* `reinflow_step`: the mean of the ODE step with a learned std (ReinFlow, arXiv:2505.22094).

There are two time conventions. In openpi, t = 1 is noise and the velocity is noise - action. In
GR00T, t = 0 is noise and the velocity is action - noise. This file uses the share s of noise for
both: x = s noise + (1 - s) action, where s is t for openpi and 1 - t for GR00T. Only the sign of
the velocity and the time that a network reads differ. Step k of N goes from s = 1 - k/N to
1 - (k+1)/N. openpi's own sampler repeatedly subtracts 1/N from a float32 time instead; with N = 10
its actions differ from ours by up to 1e-4.

Legend: B batch, N denoising steps, H steps in an action chunk, A action dimension, F features.
"""

import math
from collections.abc import Callable

import torch
from torch import nn

from rrf.networks.configs import MLPCfg
from rrf.networks.mlp import MLP
from rrf.policies.vla.configs import TimeConvention

Transition = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Maps x [B, H, A] and step index [B] to the ODE's next x, and to the random one's mean and std."""

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def noise_share(steps_b: torch.Tensor, num_steps: int) -> torch.Tensor:
    """The share of noise, float32 [B], before step k = 0 .. N - 1; 0 for k = N."""
    return 1.0 - steps_b.float() / num_steps


def flow_time(share_b: torch.Tensor, convention: TimeConvention) -> torch.Tensor:
    """The time in [0, 1] that a network of this convention reads."""
    return share_b if convention == "openpi" else 1.0 - share_b


def noised(
    action_bha: torch.Tensor, noise_bha: torch.Tensor, share_b: torch.Tensor
) -> torch.Tensor:
    """The point between action and noise: s noise + (1 - s) action."""
    share_b11 = share_b[:, None, None]
    return share_b11 * noise_bha + (1.0 - share_b11) * action_bha


def velocity_target(
    action_bha: torch.Tensor, noise_bha: torch.Tensor, convention: TimeConvention
) -> torch.Tensor:
    """The velocity that a network of this convention learns to predict, at any time."""
    return noise_bha - action_bha if convention == "openpi" else action_bha - noise_bha


def endpoints(
    x_bha: torch.Tensor,
    velocity_bha: torch.Tensor,
    share_b: torch.Tensor,
    convention: TimeConvention,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The action and the noise that `x` and its velocity point to."""
    share_b11 = share_b[:, None, None]
    to_noise_bha = velocity_bha if convention == "openpi" else -velocity_bha
    return x_bha - share_b11 * to_noise_bha, x_bha + (1.0 - share_b11) * to_noise_bha


def ode_step(
    x_bha: torch.Tensor,
    velocity_bha: torch.Tensor,
    steps_b: torch.Tensor,
    num_steps: int,
    convention: TimeConvention,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean [B, H, A] and std [B, 1, 1], here 0, of x after step `steps_b` (0 .. N - 1)."""
    action_bha, noise_bha = endpoints(
        x_bha, velocity_bha, noise_share(steps_b, num_steps), convention
    )
    next_b = noise_share(steps_b + 1, num_steps)
    return noised(action_bha, noise_bha, next_b), torch.zeros_like(next_b)[:, None, None]


def sde_step(
    x_bha: torch.Tensor,
    velocity_bha: torch.Tensor,
    steps_b: torch.Tensor,
    num_steps: int,
    convention: TimeConvention,
    noise_level: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `ode_step`, with std sigma sqrt(1/N) for sigma = noise_level sqrt(s / (1 - s)).

    At s = 1, the denominator of the following step, 1/N, is used, so that sigma stays finite.
    """
    share_b = noise_share(steps_b, num_steps)
    next_b11 = noise_share(steps_b + 1, num_steps)[:, None, None]
    action_bha, noise_bha = endpoints(x_bha, velocity_bha, share_b, convention)
    denominator_b = steps_b.clamp(min=1).float() / num_steps
    variance_b = noise_level**2 * share_b / denominator_b / num_steps
    drift_b11 = (variance_b / (2.0 * share_b))[:, None, None]
    mean_bha = (1.0 - next_b11) * action_bha + (next_b11 - drift_b11) * noise_bha
    return mean_bha, variance_b.sqrt()[:, None, None]


def cps_step(
    x_bha: torch.Tensor,
    velocity_bha: torch.Tensor,
    steps_b: torch.Tensor,
    num_steps: int,
    convention: TimeConvention,
    noise_level: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `ode_step`, but a part of the noise is drawn anew.

    With the angle pi/2 noise_level and the next share s' of noise, the mean contains s' cos(angle)
    of the noise that x points to, and the std is s' sin(angle). In the last step, s' and std are 0.
    """
    angle = 0.5 * math.pi * noise_level
    next_b11 = noise_share(steps_b + 1, num_steps)[:, None, None]
    action_bha, noise_bha = endpoints(
        x_bha, velocity_bha, noise_share(steps_b, num_steps), convention
    )
    mean_bha = (1.0 - next_b11) * action_bha + next_b11 * math.cos(angle) * noise_bha
    return mean_bha, next_b11 * math.sin(angle)


def reinflow_step(
    x_bha: torch.Tensor,
    velocity_bha: torch.Tensor,
    steps_b: torch.Tensor,
    num_steps: int,
    convention: TimeConvention,
    std_bha: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of `ode_step`, and the std that an `ExploreNoiseNet` predicted."""
    return ode_step(x_bha, velocity_bha, steps_b, num_steps, convention)[0], std_bha


def gaussian_log_prob(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """Log-density of each element in nats; 0, with no gradient, where std is 0."""
    is_random = std > 0
    safe_std = torch.where(is_random, std, 1.0)
    log_prob = -safe_std.log() - _HALF_LOG_2PI - 0.5 * ((x - mean) / safe_std) ** 2
    return torch.where(is_random, log_prob, 0.0)


def gaussian_entropy(std: torch.Tensor) -> torch.Tensor:
    """Entropy of each element in nats; 0 where std is 0."""
    is_random = std > 0
    return torch.where(is_random, 0.5 + _HALF_LOG_2PI + torch.where(is_random, std, 1.0).log(), 0.0)


def denoise(
    transition: Transition,
    start_bha: torch.Tensor,
    normals_bnha: torch.Tensor,
    is_random_bn: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Denoise for N steps. Each step is random for some samples and an ODE step for the others.

    Args:
        transition: The policy's step.
        start_bha: x before the first step.
        normals_bnha: Standard normal numbers, used only where the step is random.
        is_random_bn: Which steps of which samples are random.

    Returns:
        All x, [B, N + 1, H, A], of which the last is the action; and the log-density of every step,
        [B, N, H, A], which is 0 for ODE steps.
    """
    chain, log_probs = [start_bha], []
    for step in range(is_random_bn.shape[1]):
        steps_b = torch.full((len(start_bha),), step, device=start_bha.device)
        ode_bha, mean_bha, std = transition(chain[-1], steps_b)
        is_random_b11 = is_random_bn[:, step, None, None]
        drawn_bha = mean_bha + std * normals_bnha[:, step]
        next_bha = torch.where(is_random_b11, drawn_bha, ode_bha)
        log_prob_bha = gaussian_log_prob(next_bha, mean_bha, std)
        log_probs.append(torch.where(is_random_b11, log_prob_bha, 0.0))
        chain.append(next_bha)
    return torch.stack(chain, 1), torch.stack(log_probs, 1)


def step_log_prob(
    transition: Transition, chain_bnha: torch.Tensor, steps_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-density and entropy of one step per sample in the chain of `denoise`, each [B, H, A]."""
    rows_b = torch.arange(len(steps_b), device=steps_b.device)
    _, mean_bha, std = transition(chain_bnha[rows_b, steps_b], steps_b)
    log_prob_bha = gaussian_log_prob(chain_bnha[rows_b, steps_b + 1], mean_bha, std)
    return log_prob_bha, gaussian_entropy(std).expand_as(log_prob_bha)


def joint_mean(start_bha: torch.Tensor, steps_bnha: torch.Tensor) -> torch.Tensor:
    """The mean of a quantity over the start and the N steps, [B, H, A].

    For log-densities, it is 1/(N + 1) of the joint log-density of the chain. Like pi_RL's code, we
    average instead of summing. The ratio of two policies is then the geometric mean over the chain,
    and a clip range means the same for every N.
    """
    return (start_bha + steps_bnha.sum(1)) / (steps_bnha.shape[1] + 1)


def time_embedding(time_b: torch.Tensor, num_features: int) -> torch.Tensor:
    """Sines, then cosines, of the time at frequencies from 1 to 55 rad, [B, num_features]."""
    rad = torch.exp(torch.linspace(0.0, 4.0, num_features // 2, device=time_b.device))
    angle = time_b[:, None] * rad
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class ExploreNoiseNet(nn.Module):
    """The std of a ReinFlow step: tanh of an MLP, mapped to a range between two log-variances.

    `min_std` and `max_std` are in normalised action units. Maps [..., F] to [..., out_features].
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_features: list[int],
        min_std: float,
        max_std: float,
    ):
        super().__init__()
        tanh = [("Tanh", {})]
        activations = [tanh for _ in range(len(hidden_features) + 1)]
        cfg = MLPCfg(hidden_features=hidden_features, activations=activations)
        self.mlp = MLP(cfg, in_features, out_features)
        self.min_log_variance = 2.0 * math.log(min_std)
        self.max_log_variance = 2.0 * math.log(max_std)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        place = 0.5 * (self.mlp(features) + 1.0)
        span = self.max_log_variance - self.min_log_variance
        return torch.exp(0.5 * (self.min_log_variance + span * place))
