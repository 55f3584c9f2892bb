"""An action head that denoises a chunk with a learned velocity, and that has a density.

The velocity is an MLP over the features, the noisy chunk and the time. It is trained by flow
matching (arXiv:2210.02747). See `flow_matching` for the random steps and their sources. The
probability of a sample is that of its random denoising steps, not that of the action:

* `stochastic_steps="one"`: one step per sample is random, chosen among those with std > 0. The
  other steps follow the ODE. Training evaluates the network once per sample. The generator chooses
  an index for every sample (pi_RL's code chooses one for the whole batch).
* `"all"`: every step is random. The log-probability is the mean over the standard normal density of
  the start and the densities of the N steps (`joint_mean` explains why it is the mean).

Legend: B batch, N denoising steps, H steps in an action chunk, A action dimension, F features,
D hidden features.
"""

import torch
from torch.nn import functional

from rrf.networks.configs import MLPCfg
from rrf.networks.mlp import MLP
from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import (
    ActionHead,
    HeadSample,
    output_layer,
    to_normal,
    uniform_rows,
)
from rrf.policies.vla.configs import FlowMatchingHeadCfg
from rrf.policies.vla.flow_matching import (
    ExploreNoiseNet,
    Transition,
    cps_step,
    denoise,
    endpoints,
    flow_time,
    gaussian_entropy,
    gaussian_log_prob,
    joint_mean,
    noise_share,
    noised,
    ode_step,
    reinflow_step,
    sde_step,
    step_log_prob,
    time_embedding,
    velocity_target,
)
from rrf.policies.vla.losses import masked_mean

_TIME_FEATURES = 32


class FlowMatchingHead(ActionHead):
    """Denoises a chunk from normal noise. A greedy chunk starts from zeros and follows the ODE.

    Elements beyond `env_chunk_length` or `env_action_dim` are denoised and trained like the others.
    However, their log-probability and entropy are 0, and policy gradients exclude them from every
    mean.

    Raises:
        ValueError: If `env_chunk_length` or `env_action_dim` exceeds the policy's.
    """

    def __init__(
        self, cfg: FlowMatchingHeadCfg, in_features: int, chunk_length: int, action_dim: int
    ):
        super().__init__(chunk_length, action_dim, _executed(cfg, chunk_length, action_dim))
        self.cfg = cfg
        size, widths = chunk_length * action_dim, cfg.hidden_features
        hidden = MLPCfg(
            hidden_features=widths[:-1], activations=[[("SiLU", {})] for _ in range(len(widths))]
        )
        self.hidden = MLP(hidden, in_features + size + _TIME_FEATURES, widths[-1])
        self.output = output_layer(widths[-1], size)
        self.explore_noise = None
        if cfg.noise_method == "reinflow":
            self.explore_noise = ExploreNoiseNet(
                widths[-1], size, cfg.std_hidden_features, cfg.min_std, cfg.max_std
            )

    def forward(
        self, features_bf: torch.Tensor, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The velocity in the config's convention and, for ReinFlow, the std; float32 [B, H, A].

        Args:
            features_bf: Features of the observation.
            x_bha: The noisy chunk.
            share_b: Share of noise in the chunk, from 0 to 1.
        """
        # In bfloat16, the density would differ between sampling and training, so use float32.
        with torch.autocast(features_bf.device.type, enabled=False):
            time = time_embedding(flow_time(share_b, self.cfg.time_convention), _TIME_FEATURES)
            hidden_bd = self.hidden(torch.cat([features_bf.float(), x_bha.flatten(1), time], 1))
            std_bha = self.explore_noise(hidden_bd) if self.explore_noise else None
            velocity_bha = self.output(hidden_bd).view_as(x_bha)
            if std_bha is not None:
                std_bha = std_bha.view_as(x_bha) * self.noise_factor
            return velocity_bha, std_bha

    def sample(self, features_bf: torch.Tensor, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk.

        `replay` holds `chain` [B, N + 1, H, A] and, if a single step is random, its `denoise_index`
        [B]. The log-probability of a greedy chain is its log-probability under sampling; if a
        single step is random, this is step 0.
        """
        transition, batch = self._transition(features_bf), len(features_bf)
        if greedy:
            start_bha = features_bf.new_zeros(
                batch, self.chunk_length, self.action_dim, dtype=torch.float32
            )
            index_b = torch.zeros(batch, dtype=torch.long, device=features_bf.device)
            normals_bnha = start_bha[:, None]
            is_random_bn = torch.zeros_like(self._random_steps(index_b))
        else:
            index_b, start_bha, normals_bnha = self._draw(batch, generator, features_bf.device)
            is_random_bn = self._random_steps(index_b)
        normals_bnha = normals_bnha.expand(-1, self.cfg.num_denoise_steps, -1, -1)
        chain, log_probs = denoise(transition, start_bha, normals_bnha, is_random_bn)
        replay = {"chain": chain}
        if self.cfg.stochastic_steps == "one":
            replay["denoise_index"] = index_b
        if greedy:
            return HeadSample(chain[:, -1], self.evaluate(features_bf, replay)[0], replay)
        log_prob = self._reduce(_standard_log_prob(start_bha), log_probs)
        return HeadSample(chain[:, -1], log_prob, replay)

    def evaluate(
        self, features_bf: torch.Tensor, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of the chain's random steps, each [B, H * A]."""
        chain, transition = replay["chain"], self._transition(features_bf)
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

    def loss(
        self, features_bf: torch.Tensor, target_bha: torch.Tensor, is_pad_bh: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared error of the velocity at a uniformly random time.

        `loss/action_l1` is the error of the action that this velocity points to. Time and noise
        come from torch's global random generator.
        """
        convention = self.cfg.time_convention
        noise_bha = torch.randn_like(target_bha)
        share_b = torch.rand(len(target_bha), device=target_bha.device)
        x_bha = noised(target_bha, noise_bha, share_b)
        velocity_bha, _ = self(features_bf, x_bha, share_b)
        wanted_bha = velocity_target(target_bha, noise_bha, convention)
        error_bha = functional.mse_loss(velocity_bha, wanted_bha, reduction="none")
        action_bha, _ = endpoints(x_bha, velocity_bha.detach(), share_b, convention)
        action_l1 = masked_mean((action_bha - target_bha).abs(), is_pad_bh)
        return masked_mean(error_bha, is_pad_bh), {"loss/action_l1": action_l1.item()}

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

    def _random_steps(self, index_b: torch.Tensor) -> torch.Tensor:
        num_steps = self.cfg.num_denoise_steps
        if self.cfg.stochastic_steps == "one":
            return functional.one_hot(index_b, num_steps).bool()
        return torch.ones(len(index_b), num_steps, dtype=torch.bool, device=index_b.device)

    def _transition(self, features_bf: torch.Tensor) -> Transition:
        # Steps become random only here, so sampling and evaluation cannot disagree.
        cfg = self.cfg

        def transition(x_bha: torch.Tensor, steps_b: torch.Tensor):
            share_b = noise_share(steps_b, cfg.num_denoise_steps)
            velocity_bha, std_bha = self(features_bf, x_bha, share_b)
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


def _executed(cfg: FlowMatchingHeadCfg, chunk_length: int, action_dim: int) -> torch.Tensor:
    mask_ha = torch.zeros(chunk_length, action_dim, dtype=torch.bool)
    for name, have in (("env_chunk_length", chunk_length), ("env_action_dim", action_dim)):
        if (getattr(cfg, name) or have) > have:
            raise ValueError(
                f"{name} is {getattr(cfg, name)}, allowed: 1 to {have}, the number that the policy "
                "predicts, or null for all"
            )
    mask_ha[: cfg.env_chunk_length, : cfg.env_action_dim] = True
    return mask_ha
