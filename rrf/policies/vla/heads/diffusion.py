"""A diffusion head: it predicts the noise in a chunk (DDPM, arXiv:2006.11239).

Training draws one of K noise levels of the squared-cosine schedule. Sampling visits N of them, K/N
apart (K - K/N first, 0 last), by DDIM (arXiv:2010.02502), as Diffusion Policy (arXiv:2303.04137)
does. With `eta` above 0, each of these steps but the last is Gaussian, so a chunk has a density for
policy gradients (arXiv:2409.00588; see `denoising_head`).

Legend: B rows, F features, H steps in a chunk, A action dimension, K levels, N denoising steps.
"""

import torch
from torch.nn import functional

from rrf.networks.configs import MLPCfg
from rrf.networks.mlp import MLP
from rrf.networks.noise_schedule import ddim_step, denoised, noisy, squared_cosine
from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import HeadSample, output_layer
from rrf.policies.vla.denoising_head import DenoisingHead
from rrf.policies.vla.flow_matching import Transition, time_embedding
from rrf.policies.vla.heads.diffusion_configs import DiffusionHeadCfg
from rrf.policies.vla.losses import masked_mean, without_absent

_TIME_FEATURES = 32


class DiffusionHead(DenoisingHead):
    """See the module."""

    levels: torch.Tensor

    def __init__(self, cfg: DiffusionHeadCfg, in_features: int, chunk_length: int, action_dim: int):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        size, widths = chunk_length * action_dim, cfg.hidden_features
        hidden = MLPCfg(
            hidden_features=widths[:-1], activations=[[("SiLU", {})] for _ in range(len(widths))]
        )
        self.hidden = MLP(hidden, in_features + size + _TIME_FEATURES, widths[-1])
        self.output = output_layer(widths[-1], size)
        self.register_buffer("levels", squared_cosine(cfg.num_train_steps), persistent=False)

    @property
    def num_steps(self) -> int:
        return self.cfg.num_denoise_steps

    @property
    def num_random_steps(self) -> int:
        return self.cfg.num_denoise_steps - 1  # the last step ends without noise

    @property
    def has_single_random_step(self) -> bool:
        return self.cfg.stochastic_steps == "one"

    def noise(
        self, features_bf: torch.Tensor, x_bha: torch.Tensor, index_b: torch.Tensor
    ) -> torch.Tensor:
        """The predicted noise in `x` at noise level `index_b` (0 .. K - 1), float32 [B, H, A]."""
        # In bfloat16, the density would differ between sampling and training, so use float32.
        with torch.autocast(features_bf.device.type, enabled=False):
            time = time_embedding(index_b / self.cfg.num_train_steps, _TIME_FEATURES)
            joined = torch.cat([features_bf.float(), x_bha.flatten(1), time], 1)
            return self.output(self.hidden(joined)).view_as(x_bha)

    def transition(self, given: torch.Tensor) -> Transition:
        # Steps become random only here, so sampling and evaluation cannot disagree.
        cfg = self.cfg
        stride = cfg.num_train_steps // cfg.num_denoise_steps
        ends = functional.pad(self.levels, (stride, 0), value=1.0)  # a of the level after index k

        def transition(x_bha: torch.Tensor, steps_b: torch.Tensor):
            index_b = cfg.num_train_steps - stride * (steps_b + 1)
            level_b, next_b = self.levels[index_b], ends[index_b]
            noise_bha = self.noise(given, x_bha, index_b)
            action_bha = denoised(x_bha, noise_bha, level_b, cfg.clip)
            step = (action_bha, noise_bha, level_b, next_b)
            return ddim_step(*step, 0.0)[0], *ddim_step(*step, cfg.eta * self.noise_factor)

        return transition

    def sample(self, features: torch.Tensor, generator: Generators, greedy: bool) -> HeadSample:
        sample = super().sample(features, generator, greedy)
        return sample if self.cfg.eta else HeadSample(sample.actions, None, {})

    def evaluate(
        self, features: torch.Tensor, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.cfg.eta:
            raise NotImplementedError(
                "a diffusion head with eta = 0 has no density and cannot be trained by policy "
                "gradients; set policy.head.eta above 0, for instance to 1"
            )
        return super().evaluate(features, replay)

    def loss(
        self, features: torch.Tensor, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared error of the noise at a random level; the mean over `num_noise_draws` levels.

        `loss/action_l1` is the error of the action that this noise points to. Level and noise come
        from torch's global random generator.
        """
        losses, errors = [], []
        for _ in range(self.cfg.num_noise_draws):
            shape, device = (len(target_bha),), target_bha.device
            index_b = torch.randint(self.cfg.num_train_steps, shape, device=device)
            noise_bha = without_absent(torch.randn_like(target_bha), is_pad)
            level_b = self.levels[index_b]
            x_bha = noisy(target_bha, noise_bha, level_b)
            predicted_bha = self.noise(features, x_bha, index_b)
            losses.append(masked_mean((predicted_bha - noise_bha) ** 2, is_pad))
            action_bha = denoised(x_bha, predicted_bha.detach(), level_b, self.cfg.clip)
            errors.append(masked_mean((action_bha - target_bha).abs(), is_pad))
        return torch.stack(losses).mean(), {"loss/action_l1": torch.stack(errors).mean().item()}
