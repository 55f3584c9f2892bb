"""A flow-matching head whose velocity is an MLP over the features, the noisy chunk and the time.

Legend: B batch, H steps in an action chunk, A action dimension, F features, D hidden features.
"""

import torch

from rrf.networks.configs import MLPCfg
from rrf.networks.mlp import MLP
from rrf.policies.vla.action_heads import output_layer
from rrf.policies.vla.configs import FlowMatchingHeadCfg
from rrf.policies.vla.flow_head import FlowHead
from rrf.policies.vla.flow_matching import ExploreNoiseNet, flow_time, time_embedding

_TIME_FEATURES = 32


class FlowMatchingHead(FlowHead):
    """See the module.

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

    def velocity(
        self, given: torch.Tensor, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `FlowHead.velocity`. `given` are the features, [B, F]."""
        # In bfloat16, the density would differ between sampling and training, so use float32.
        with torch.autocast(given.device.type, enabled=False):
            time = time_embedding(flow_time(share_b, self.cfg.time_convention), _TIME_FEATURES)
            hidden_bd = self.hidden(torch.cat([given.float(), x_bha.flatten(1), time], 1))
            std_bha = self.explore_noise(hidden_bd) if self.explore_noise else None
            velocity_bha = self.output(hidden_bd).view_as(x_bha)
            if std_bha is not None:
                std_bha = std_bha.view_as(x_bha) * self.noise_factor
            return velocity_bha, std_bha


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
