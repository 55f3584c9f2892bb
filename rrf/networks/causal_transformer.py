"""A small causal transformer whose attention depends on distances in time, not on positions.

Each head adds a learned bias per distance to its scores (arXiv:1910.10683). A history therefore has
the same features wherever it lies in a window, so that windows of a replay and the growing memory
of a deployed policy agree. Blocks normalise their inputs first (pre-norm, arXiv:2002.04745).

Legend: B batch, L tokens, S heads, C context, D width.
"""

import torch
from torch import nn
from torch.nn import functional


class CausalTransformer(nn.Module):
    """Blocks of attention and feed-forward layer over tokens [B, L, D]."""

    def __init__(self, width: int, num_layers: int, num_heads: int, context: int):
        super().__init__()
        self.num_heads, self.context = num_heads, context
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, context))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, tokens_bld: torch.Tensor, times_l: torch.Tensor, visible_bll: torch.Tensor
    ) -> torch.Tensor:
        """The features of the tokens, [B, L, D].

        Args:
            tokens_bld: Embedded observations.
            times_l: int64, the time step of each token.
            visible_bll: bool; the tokens (last index) that each token attends to. None of them may
                lie further back than the context, and every token must attend to at least one.
        """
        distances = (times_l.unsqueeze(1) - times_l).clamp(0, self.context - 1)
        bias = self.distance_bias[:, distances]
        scores = torch.where(visible_bll.unsqueeze(1), bias, float("-inf"))
        for block in self.blocks:
            tokens_bld = block(tokens_bld, scores)
        return self.norm(tokens_bld)


class Block(nn.Module):
    """Attention, then a feed-forward layer that is twice as wide inside."""

    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x_bld: torch.Tensor, scores_bsll: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_bld.shape
        joined = self.queries_keys_values(self.attention_norm(x_bld))
        heads = joined.view(batch, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=scores_bsll)
        x_bld = x_bld + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return x_bld + self.feed_forward(x_bld)
