"""Parts of a policy in two parts: what System 2 sends, and what stands where a part is not.

Legend: B rows, L tokens of a backbone, D their width, T feature vectors, W their width.
"""

import typing
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.vlm.backbone import Backbone, Features
from rrf.policies.vla.action_heads import ActionHead
from rrf.policies.vla.psi0_configs import AbsentBackboneCfg, AbsentHeadCfg


class Compressor(nn.Module):
    """Tokens of a backbone -> T vectors [B, T, W] of mean 0 and std 1.

    One vector is that of all tokens, pooled. Several are what as many learned queries find among
    the tokens, as in the Perceiver resampler of Flamingo (arXiv:2204.14198), with a single layer
    and a single head.

    Args:
        in_width: D.
        num_tokens: T.
        width: W.
        pooling: For one vector; see `Features.pooled`.
    """

    def __init__(self, in_width: int, num_tokens: int, width: int, pooling: str):
        super().__init__()
        self._pooling = pooling
        self.norm = nn.LayerNorm(in_width)
        self.value = nn.Linear(in_width, width)
        self.queries = None
        if num_tokens > 1:
            self.key = nn.Linear(in_width, width)
            self.queries = nn.Parameter(torch.randn(num_tokens, width))
        self.output_norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, features: Features) -> torch.Tensor:
        tokens_bld = self.norm(features.tokens.to(self.norm.weight.dtype))
        if self.queries is None:
            pooled = Features(tokens_bld, features.is_token, features.is_image)
            return self.output_norm(self.value(pooled.pooled(self._pooling)))[:, None]
        found_btw = functional.scaled_dot_product_attention(
            self.queries.expand(len(tokens_bld), -1, -1),
            self.key(tokens_bld),
            self.value(tokens_bld),
            attn_mask=features.is_token[:, None],
        )
        return self.output_norm(self.queries + found_btw)


class TokenSource(typing.NamedTuple):
    """What a head that reads tokens is built for, instead of a backbone."""

    width: int


class AbsentBackbone(Backbone[AbsentBackboneCfg]):
    """Where only System 1 is."""

    def __init__(self, cfg: AbsentBackboneCfg, assets: Path | None = None):
        super().__init__(cfg)


class AbsentHead(ActionHead):
    """Where only System 2 is."""

    def __init__(
        self,
        cfg: AbsentHeadCfg,
        backbone: TokenSource,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
