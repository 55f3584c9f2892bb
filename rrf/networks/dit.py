"""A diffusion transformer that attends to the tokens of a backbone.

Each block is attention and a feed-forward layer, both residual. The time scales and shifts what
the attention reads (arXiv:2212.09748, without its gates). Names and arithmetic are those of the
blocks of the package diffusers, as GR00T (arXiv:2503.14734) uses them, so that the state dict of a
published head fits. The keys and values of the backbone's tokens do not depend on the chunk: they
are computed once and serve all denoising steps.

Legend: B rows, L tokens of the chunk, S tokens of the backbone, D width, M width of the backbone,
N heads, W width of a head.
"""

import math
import typing
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.dit_configs import DiTCfg

KeysValues = tuple[torch.Tensor, torch.Tensor]  # both [B, N, S, W]

_TIME_FEATURES = 256
_MAX_PERIOD = 10_000.0


class DiT(nn.Module):
    """Maps tokens [B, L, D] and a time to [B, L, out_features]. See the module."""

    def __init__(self, cfg: DiTCfg, memory_width: int, out_features: int):
        super().__init__()
        self.timestep_encoder = TimestepEncoder(cfg.width)
        self.transformer_blocks = nn.ModuleList(
            Block(cfg, None if cfg.interleaves and index % 2 else memory_width)
            for index in range(cfg.num_layers)
        )
        self.norm_out = nn.LayerNorm(cfg.width, elementwise_affine=False, eps=1e-6)
        self.proj_out_1 = nn.Linear(cfg.width, 2 * cfg.width)
        self.proj_out_2 = nn.Linear(cfg.width, out_features)

    def memory(self, tokens_bsm: torch.Tensor) -> list[KeysValues]:
        """Keys and values of a backbone's tokens, for each block that attends to them."""
        blocks = [typing.cast("Block", block) for block in self.transformer_blocks]
        return [block.attn1.keys_values(tokens_bsm) for block in blocks if block.reads_memory]

    def forward(
        self,
        tokens_bld: torch.Tensor,
        memory: Sequence[KeysValues],
        time_b: torch.Tensor,
        masks: Sequence[torch.Tensor | None] = (None,),
    ) -> torch.Tensor:
        """One pass.

        Args:
            tokens_bld: Tokens of the chunk.
            memory: What `memory` returned.
            time_b: The time, 0 to 1000.
            masks: Bool [B, S], the backbone's tokens to attend to; None for all. The blocks that
                read the backbone take these masks in turn.
        """
        condition_bd = self.timestep_encoder(time_b)
        place = 0
        for block in self.transformer_blocks:
            if block.reads_memory:
                mask_bs = masks[place % len(masks)]
                tokens_bld = block(tokens_bld, condition_bd, memory[place], mask_bs)
                place += 1
            else:
                tokens_bld = block(tokens_bld, condition_bd)
        shift_bd, scale_bd = self.proj_out_1(functional.silu(condition_bd)).chunk(2, dim=1)
        return self.proj_out_2(_modulated(self.norm_out(tokens_bld), scale_bd, shift_bd))


class SelfAttentionTransformer(nn.Module):
    """Blocks over the tokens of a backbone that know no time, [B, S, M] -> [B, S, M]."""

    def __init__(self, num_layers: int, num_heads: int, width: int, dropout: float):
        super().__init__()
        cfg = DiTCfg(num_heads=num_heads, head_width=width // num_heads, dropout=dropout)
        self.transformer_blocks = nn.ModuleList(
            Block(cfg, None, has_time=False) for _ in range(num_layers)
        )

    def forward(
        self, tokens_bsm: torch.Tensor, mask_bs: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`mask_bs` is False for tokens that none attends to."""
        for block in self.transformer_blocks:
            tokens_bsm = block(tokens_bsm, mask_bs=mask_bs)
        return tokens_bsm


class Block(nn.Module):
    """Attention and a feed-forward layer.

    Args:
        cfg: Sizes.
        memory_width: M, if the block attends to a backbone's tokens; None if to its own.
        has_time: The time scales and shifts the input of the attention.
    """

    def __init__(self, cfg: DiTCfg, memory_width: int | None, has_time: bool = True):
        super().__init__()
        self.reads_memory = memory_width is not None
        self.norm1 = AdaLayerNorm(cfg.width) if has_time else nn.LayerNorm(cfg.width)
        self.attn1 = Attention(cfg, memory_width or cfg.width)
        self.norm3 = nn.LayerNorm(cfg.width, elementwise_affine=not has_time)
        self.ff = FeedForward(cfg.width, cfg.dropout)
        self.final_dropout = nn.Dropout(cfg.dropout)

    def forward(
        self,
        tokens_bld: torch.Tensor,
        condition_bd: torch.Tensor | None = None,
        memory: KeysValues | None = None,
        mask_bs: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if condition_bd is None:
            normed_bld = self.norm1(tokens_bld)
        else:
            normed_bld = self.norm1(tokens_bld, condition_bd)
        tokens_bld = tokens_bld + self.final_dropout(self.attn1(normed_bld, memory, mask_bs))
        return tokens_bld + self.ff(self.norm3(tokens_bld))


class Attention(nn.Module):
    """Multi-head attention to given keys and values, or to the tokens themselves."""

    def __init__(self, cfg: DiTCfg, memory_width: int):
        super().__init__()
        self.num_heads = cfg.num_heads
        self.to_q = nn.Linear(cfg.width, cfg.width)
        self.to_k = nn.Linear(memory_width, cfg.width)
        self.to_v = nn.Linear(memory_width, cfg.width)
        self.to_out = nn.ModuleList([nn.Linear(cfg.width, cfg.width), nn.Dropout(cfg.dropout)])

    def keys_values(self, memory_bsm: torch.Tensor) -> KeysValues:
        """Keys and values of tokens."""
        return self._heads(self.to_k(memory_bsm)), self._heads(self.to_v(memory_bsm))

    def forward(
        self,
        tokens_bld: torch.Tensor,
        memory: KeysValues | None = None,
        mask_bs: torch.Tensor | None = None,
    ) -> torch.Tensor:
        keys_bnsw, values_bnsw = memory or self.keys_values(tokens_bld)
        attended_bnlw = functional.scaled_dot_product_attention(
            self._heads(self.to_q(tokens_bld)),
            keys_bnsw,
            values_bnsw,
            attn_mask=None if mask_bs is None else mask_bs[:, None, None, :],
        )
        attended_bld = attended_bnlw.transpose(1, 2).flatten(2)
        for layer in self.to_out:
            attended_bld = layer(attended_bld)
        return attended_bld

    def _heads(self, tokens_bsd: torch.Tensor) -> torch.Tensor:
        return tokens_bsd.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two layers with GELU's tanh approximation, four times as wide in between."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        layers = [_GELU(width, 4 * width), nn.Dropout(dropout), nn.Linear(4 * width, width)]
        self.net = nn.Sequential(*layers, nn.Dropout(dropout))

    def forward(self, tokens_bld: torch.Tensor) -> torch.Tensor:
        return self.net(tokens_bld)


class AdaLayerNorm(nn.Module):
    """A layer norm whose scale and shift come from a condition."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, tokens_bld: torch.Tensor, condition_bd: torch.Tensor) -> torch.Tensor:
        scale_bd, shift_bd = self.linear(functional.silu(condition_bd)).chunk(2, dim=1)
        return _modulated(self.norm(tokens_bld), scale_bd, shift_bd)


class TimestepEncoder(nn.Module):
    """A time from 0 to 1000 -> [B, D]."""

    def __init__(self, width: int):
        super().__init__()
        self.timestep_embedder = _TimestepEmbedder(width)

    def forward(self, time_b: torch.Tensor) -> torch.Tensor:
        half = _TIME_FEATURES // 2
        # Rounded as in diffusers: at time 1000, the last bit of a frequency shows in the result.
        exponents = -math.log(_MAX_PERIOD) * torch.arange(half, device=time_b.device) / (half - 1)
        angle = time_b.float()[:, None] * exponents.exp()
        waves = torch.cat([angle.cos(), angle.sin()], dim=1)
        return self.timestep_embedder(waves.to(self.timestep_embedder.linear_1.weight.dtype))


class _TimestepEmbedder(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear_1 = nn.Linear(_TIME_FEATURES, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        return self.linear_2(functional.silu(self.linear_1(waves)))


class _GELU(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.proj = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.proj(x), approximate="tanh")


def _modulated(
    tokens_bld: torch.Tensor, scale_bd: torch.Tensor, shift_bd: torch.Tensor
) -> torch.Tensor:
    return tokens_bld * (1 + scale_bd[:, None]) + shift_bd[:, None]
